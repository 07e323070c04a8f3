//! Bodies over HTTP/2 that end once the client has taken all of them. The stream of an answer that has ended earlier,
//! with data that its client does not take, could no longer be ended by anybody.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::{Frame, SizeHint};

use super::body::{Body, BoxError};
use crate::codec::Slices;
use crate::memory::Cut;

pub(super) struct UntilTaken {
    inner: Body,
    cut: Cut,
    /// What comes last: the end, or trailers.
    last: Option<Option<Frame<Slices>>>,
}

// === impl UntilTaken ===

impl UntilTaken {
    pub(super) fn new(inner: Body, cut: Cut) -> Self {
        Self { inner, cut, last: None }
    }
}

impl http_body::Body for UntilTaken {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        if self.last.is_none() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()? {
                Some(frame) if frame.is_data() => return Poll::Ready(Some(Ok(frame))),
                last => self.last = Some(last),
            }
        }
        ready!(self.cut.poll_taken(cx));
        Poll::Ready(self.last.as_mut().and_then(Option::take).map(Ok))
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
