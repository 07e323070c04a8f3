//! Gets and lists on their way to a client: accounted for until they are taken, and given up when nobody takes them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use super::status::Error;
use crate::memory::{Leash, Leashes, Reservation};

/// Says that an answer is to be taken, and what it holds until then. In the extensions of a response.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    pub(super) held: Option<Arc<Reservation>>,
}

/// A body of which the transport has small parts only: what it has got it keeps for as long as the client likes.
struct Leashed {
    leash: Arc<Leash<Rest>>,
    /// The client has a part of a message.
    within: bool,
    over: bool,
}

struct Rest {
    body: Body,
    /// Messages of which the transport has not got everything.
    made: Bytes,
    _held: Option<Arc<Reservation>>,
}

type Next = Poll<Option<Result<Frame<Bytes>, Status>>>;

/// What the transport gets at once; a frame of HTTP/2 has no more.
const PART: usize = 16 << 10;

/// Gives the body up when its client has stopped to take it.
pub(super) fn leashed(body: Body, taken: Taken, leashes: &Leashes) -> Body {
    let leash = leashes.hold(Rest { body, made: Bytes::new(), _held: taken.held });
    Body::new(Leashed { leash, within: false, over: false })
}

// === impl Rest ===

impl Rest {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Next {
        while self.made.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(made) if made.len() <= PART => return Poll::Ready(Some(Ok(Frame::data(made)))),
                    Ok(made) => self.made = made,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        // A copy: a slice would keep all of it.
        let part = self.made.split_to(PART.min(self.made.len()));
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(&part)))))
    }
}

// === impl Leashed ===

impl http_body::Body for Leashed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { leash, within, over } = &mut *self;
        if *over {
            return Poll::Ready(None);
        }
        let next = leash.take(|held| {
            let Some(rest) = held else { return Poll::Ready(None) };
            let next = rest.poll_part(cx);
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
            Ok(next) => next.map_err(Into::into),
            // Half a message cannot be followed by a status. The reset means the same to every client.
            Err(_) if *within => {
                *over = true;
                Poll::Ready(Some(Err(h2::Error::from(h2::Reason::ENHANCE_YOUR_CALM).into())))
            }
            Err(given_up) => {
                *over = true;
                let status = Status::from(Error::no_memory(given_up.to_string()));
                let mut trailers = HeaderMap::new();
                Poll::Ready(Some(match status.add_header(&mut trailers) {
                    Ok(()) => Ok(Frame::trailers(trailers)),
                    Err(status) => Err(status.into()),
                }))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
