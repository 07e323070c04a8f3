//! The body of a stream of messages. It replaces the body of the library, which copies each message and computes its
//! length twice.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http_body::Frame;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tonic::Status;

use super::message::{Message, Pieces};
use crate::codec::Slices;
use crate::grpc::call::{Body, BoxError, trailers};

/// The source of the messages of a stream.
pub(in crate::grpc) trait Messages: Send + Unpin + 'static {
    /// Returns the next message. `None` or an error ends the stream.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>>;

    /// Whether the last poll stopped early to let others run. The task was woken: there is more to do.
    fn is_paused(&self) -> bool;

    /// Whether no message follows the last one yet, so that there is no use in a poll before that one is sent.
    fn is_caught_up(&self) -> bool {
        false
    }
}

/// The messages of a response whose own body is empty. Stored in the extensions of a response, which must be
/// cloneable.
#[derive(Clone)]
pub(in crate::grpc) struct Elsewhere(Arc<Mutex<Option<MakeBody>>>);

/// Makes the body. The argument tells whether messages are compressed with gzip.
type MakeBody = Box<dyn FnOnce(bool) -> Body + Send>;

/// An empty frame says that others should run before it goes on.
struct MessageBody<M> {
    messages: M,
    gzip: bool,
    end: Option<Status>,
    /// The last frame ended with a pause: the next frame is empty.
    pauses: bool,
    over: bool,
}

/// Messages are sent together until they reach this size in bytes.
const TOGETHER: usize = 32 << 10;

// === impl Elsewhere ===

impl Elsewhere {
    pub(in crate::grpc) fn new(messages: impl Messages) -> Self {
        let make = |gzip| MessageBody { messages, gzip, end: None, pauses: false, over: false }.boxed_unsync();
        Self(Arc::new(Mutex::new(Some(Box::new(make)))))
    }

    /// Returns the body. `gzip` must match the headers of the response.
    pub(in crate::grpc) fn into_body(self, gzip: bool) -> Option<Body> {
        let make = self.0.lock().take()?;
        Some(make(gzip))
    }
}

// === impl MessageBody ===

impl<M: Messages> MessageBody<M> {
    /// Collects the messages that are available.
    fn gather(&mut self, cx: &mut Context<'_>) -> Slices {
        let mut pieces = Pieces::default();
        let is_enough = |messages: &M| messages.is_caught_up() || messages.is_paused();
        while pieces.len() < TOGETHER && self.end.is_none() && !(pieces.len() > 0 && is_enough(&self.messages)) {
            match self.messages.poll_message(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(message))) if self.gzip => {
                    self.end = pieces.push_gzip(message).err().map(|error| Status::internal(error.to_string()));
                }
                Poll::Ready(Some(Ok(message))) => pieces.push(message),
                Poll::Ready(Some(Err(status))) => self.end = Some(status),
                Poll::Ready(None) => self.end = Some(Status::ok("")),
            }
        }
        pieces.finish()
    }
}

impl<M: Messages> http_body::Body for MessageBody<M> {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if std::mem::take(&mut self.pauses) {
            return Poll::Ready(Some(Ok(Frame::data(Slices::new()))));
        }
        if self.end.is_none() {
            let messages = self.gather(cx);
            let is_paused = self.end.is_none() && self.messages.is_paused();
            if !messages.is_empty() || is_paused {
                self.pauses = is_paused && !messages.is_empty();
                return Poll::Ready(Some(Ok(Frame::data(messages))));
            }
        }
        let Some(status) = self.end.take() else { return Poll::Pending };
        self.over = true;
        Poll::Ready(Some(trailers(&status)))
    }

    fn is_end_stream(&self) -> bool {
        self.over
    }
}
