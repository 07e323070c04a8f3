//! Response bodies of all calls but those of watches. What is accounted for is so until the client reads it; stalled ones
//! are dropped. A stream that has nothing to say for any time is not stalled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use tonic::Status;

use super::body::{Body, BoxError, of_bytes, trailers};
use super::lasting::Place;
use super::status::{Error, shorten};
use crate::codec::Slices;
use crate::memory::{Reservation, StallGuard, StallGuards};

/// Holds the memory of a response until the client has read it. Stored in the extensions of a response.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Taken(pub(in crate::grpc) Arc<Reservation>);

/// A body that passes only small parts to the transport: the transport may keep a part for as long as the client
/// stalls.
struct Leashed {
    stall_guard: Arc<StallGuard<AnswerRest>>,
    /// Whether only a part of a message was sent.
    within: bool,
    over: bool,
}

struct AnswerRest {
    body: tonic::body::Body,
    /// A message that is not yet completely passed to the transport.
    made: Bytes,
    _held: Option<Arc<Reservation>>,
    _place: Option<Place>,
}

type Next = Poll<Option<Result<Frame<Bytes>, Status>>>;

/// The size of one part in bytes. An HTTP/2 frame holds no more by default.
const PART: usize = 16 << 10;

/// The same response. Its body is dropped when its client stops reading it. `place`: given back when the body ends.
pub(in crate::grpc) fn leashed(
    mut response: Response<tonic::body::Body>,
    place: Option<Place>,
    stall_guards: &StallGuards,
) -> Response<Body> {
    shorten(response.headers_mut());
    let held = response.extensions_mut().remove::<Taken>().map(|Taken(held)| held);
    let (mut head, body) = response.into_parts();
    // Nothing follows the head.
    if body.is_end_stream() {
        return Response::from_parts(head, of_bytes(body));
    }
    let stall_guard = stall_guards.hold(AnswerRest { body, made: Bytes::new(), _held: held, _place: place });
    head.extensions.insert(stall_guard.cut());
    Response::from_parts(head, Leashed { stall_guard, within: false, over: false }.boxed_unsync())
}

// === impl AnswerRest ===

impl AnswerRest {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Next {
        while self.made.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(made) if made.len() <= PART => return Poll::Ready(Some(Ok(Frame::data(made)))),
                    Ok(made) => self.made = made,
                    Err(mut trailers) => {
                        trailers.trailers_mut().into_iter().for_each(shorten);
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                other => return Poll::Ready(other),
            }
        }
        // Copy the part: a slice would keep the whole message alive.
        let part = self.made.split_to(PART.min(self.made.len()));
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&part)))))
    }
}

// === impl Leashed ===

impl http_body::Body for Leashed {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, Self::Error>>> {
        let Self { stall_guard, within, over } = &mut *self;
        if *over {
            return Poll::Ready(None);
        }
        let next = stall_guard.poll_take(|held| {
            let Some(rest) = held else { return Poll::Ready(None) };
            let next = rest.poll_part(cx).map_ok(|frame| {
                frame.map_data(|part| {
                    let mut part = Slices::from(part);
                    if !part.is_empty() {
                        part.hold(stall_guard.give(part.len()));
                    }
                    part
                })
            });
            *within = !rest.made.is_empty();
            let is_over = match &next {
                Poll::Ready(None | Some(Err(_))) => true,
                Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
                Poll::Pending => false,
            };
            if is_over {
                *held = None;
            }
            next
        });
        match next {
            Ok(Poll::Pending) => {
                // It may be given up until the client has taken what is out. Nothing else wakes it then.
                _ = stall_guard.cut().poll_room(cx, 1);
                Poll::Pending
            }
            Ok(next) => next.map_err(Into::into),
            // No status can follow half a message. Every client treats this reset code the same way.
            Err(_) if *within => {
                *over = true;
                Poll::Ready(Some(Err(h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM).into())))
            }
            Err(given_up) => {
                *over = true;
                Poll::Ready(Some(trailers(&Error::no_memory(given_up.to_string()).into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::{BodyExt, StreamBody};
    use tokio_stream::{StreamExt as _, iter};

    use super::*;
    use crate::memory::{Ledger, Pressure};

    const TIMEOUT: Duration = Duration::from_secs(100);

    /// A body with messages of these lengths, and a ledger that accounts for them.
    fn answer(lengths: &'static [usize], stall_guards: &StallGuards) -> (Body, Ledger) {
        let ledger = Ledger::new(1 << 20, Pressure::default());
        let held = Arc::new(ledger.reserve(1000).unwrap());
        let messages = iter(lengths).map(|&length| Ok::<_, Status>(Frame::data(Bytes::from(vec![b'x'; length]))));
        let mut response = Response::new(tonic::body::Body::new(StreamBody::new(messages)));
        response.extensions_mut().insert(Taken(held));
        (leashed(response, None, stall_guards).into_body(), ledger)
    }

    #[tokio::test]
    async fn an_answer_that_is_taken_is_whole() {
        let stall_guards = StallGuards::default();
        let (body, ledger) = answer(&[10, 100_000, 0, 20_000], &stall_guards);
        assert_eq!(ledger.used(), 1000);
        let mut body = body;
        let mut sum = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= PART);
            sum += data.len();
        }
        assert_eq!((sum, ledger.used()), (120_010, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_given_up_and_says_so() {
        let stall_guards = StallGuards::default();
        crate::lifecycle::spawn("stall_guards", stall_guards.clone().watch(TIMEOUT, Pressure::default(), |_| ()));
        let ((mut between, ledger), (mut within, _)) =
            (answer(&[10, 10], &stall_guards), answer(&[100_000], &stall_guards));
        for body in [&mut between, &mut within] {
            body.frame().await.unwrap().unwrap();
        }
        tokio::time::sleep(TIMEOUT * 3 / 2).await;
        assert_eq!(ledger.used(), 0);
        // Between two messages the error is a status. Within a message it is a reset with the same meaning.
        let trailers = between.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "8");
        assert!(between.frame().await.is_none());
        let error = within.frame().await.unwrap().unwrap_err();
        let reset = error.downcast_ref::<h2::Error>();
        assert_eq!(reset.and_then(h2::Error::reason), Some(h2::Reason::ENHANCE_YOUR_CALM));
        assert!(within.frame().await.is_none());
    }
}
