//! Hands requests to the tasks of their connections.

use std::future::{Future, poll_fn};
use std::task::Poll;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};

use super::replay::was_refused;
use super::request_body::ReqBody;
use crate::error::Cause;
use informerd_lifecycle::tied::{Knot, Tied};

/// The sender of a connection. The task of the connection drops it when it ends. A request that nobody reads then comes
/// back, and is not lost in the queue of the connection.
#[derive(Debug)]
pub(super) struct Sender<S>(Tied<S>);

/// A request without an answer.
pub(super) struct Unanswered {
    pub(super) error: Cause,
    /// The request, if it was not sent.
    pub(super) unsent: Option<Request<ReqBody>>,
    /// It was sent, and the server has said that it did nothing for it.
    pub(super) was_refused: bool,
}

const ENDED: &str = "the connection has ended";

// === impl Sender ===

impl<S> Sender<S> {
    /// The task of the connection keeps the [`Knot`].
    pub(super) fn new(library: S) -> (Self, Knot<S>) {
        let (tied, knot) = Tied::new(library);
        (Self(tied), knot)
    }

    /// Sends a request, and waits for the head of the response. The future of `send` must not keep the sender.
    ///
    /// # Errors
    /// The connection ended before that.
    async fn send_by<F>(
        &self,
        send: impl FnOnce(&mut S, Request<ReqBody>) -> F,
        request: Request<ReqBody>,
    ) -> Result<Response<Incoming>, Unanswered>
    where
        F: Future<Output = Result<Response<Incoming>, TrySendError<Request<ReqBody>>>>,
    {
        let mut unsent = Some(request);
        let sent = self.0.with(|library| unsent.take().map(|request| send(library, request))).flatten();
        let Some(sent) = sent else {
            return Err(Unanswered { error: Cause::new(ENDED), unsent, was_refused: false });
        };
        sent.await.map_err(|mut error| {
            let unsent = error.take_message();
            let was_refused = was_refused(error.error());
            Unanswered { error: Cause::new(error.into_error()), unsent, was_refused }
        })
    }
}

impl Sender<http1::SendRequest<ReqBody>> {
    pub(super) fn is_closed(&self) -> bool {
        self.0.with(|library| library.is_closed()).unwrap_or(true)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.0.with(|library| library.is_ready()).unwrap_or(false)
    }

    /// Waits until the connection takes a request.
    ///
    /// # Errors
    /// The connection ended before that.
    pub(super) async fn ready(&self) -> Result<(), Cause> {
        let ended = || Poll::Ready(Err(Cause::new(ENDED)));
        poll_fn(|cx| self.0.with(|library| library.poll_ready(cx).map_err(Cause::new)).unwrap_or_else(ended)).await
    }

    /// See [`Self::send_by`].
    pub(super) async fn send(&self, request: Request<ReqBody>) -> Result<Response<Incoming>, Unanswered> {
        self.send_by(http1::SendRequest::try_send_request, request).await
    }
}

impl Sender<http2::SendRequest<ReqBody>> {
    pub(super) fn is_closed(&self) -> bool {
        self.0.with(|library| library.is_closed()).unwrap_or(true)
    }

    /// See [`Self::send_by`].
    pub(super) async fn send(&self, request: Request<ReqBody>) -> Result<Response<Incoming>, Unanswered> {
        self.send_by(http2::SendRequest::try_send_request, request).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::sync::oneshot;

    use super::*;

    /// A queue that nobody reads. It gives its requests back when it is dropped, as that of the library does.
    #[derive(Default)]
    struct Queue(Vec<(Request<ReqBody>, oneshot::Sender<Request<ReqBody>>)>);

    impl Drop for Queue {
        fn drop(&mut self) {
            for (request, back) in self.0.drain(..) {
                back.send(request).unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_nobody_reads_comes_back_when_the_connection_ends() {
        // Only the library can make its error.
        let (near, _far) = tokio::io::duplex(1024);
        let (ended, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
        drop(connection);
        let (sender, knot) = Sender::new(Queue::default());
        let sent = sender.send_by(
            |queue, request| {
                let (back, returned) = oneshot::channel();
                queue.0.push((request, back));
                let mut ended = ended.clone();
                async move { ended.try_send_request(returned.await.unwrap()).await }
            },
            Request::post("/a").body(Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()).unwrap(),
        );
        let ends = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(knot);
        };
        let (answer, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(5), sent), ends);
        let Err(Unanswered { unsent: Some(unsent), .. }) = answer.expect("comes back") else { panic!("not answered") };
        assert_eq!(unsent.uri(), "/a");
        let Err(Unanswered { unsent: Some(_), .. }) =
            sender.send_by(|_, _| async { unreachable!("the connection has ended") }, unsent).await
        else {
            panic!("not sent")
        };
    }
}
