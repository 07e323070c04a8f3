//! Request bodies with a timeout.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::body::BoxError;
use crate::meta::RequestInfo;

/// How long the next part of a body may take: as long as the apiserver allows for a whole request.
const PATIENCE: Duration = Duration::from_secs(60);

/// A body that fails if its client sends nothing of it for [`PATIENCE`]. The time counts only while the body is being
/// read: a client that has to wait for the reader is not late.
#[derive(Debug)]
pub struct Patient<B> {
    inner: B,
    /// Whether `PATIENCE` applies.
    is_bounded: bool,
    /// Runs while the next part is awaited.
    late: Option<Pin<Box<Sleep>>>,
    spoilt: Spoilt,
}

/// Why a body could not be read to its end. Set when that happens.
pub(super) type Spoilt = Arc<OnceLock<String>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client sent nothing of the request's body for {} s", PATIENCE.as_secs())]
pub(super) struct Late;

// === impl Patient ===

impl<B: Body> Patient<B> {
    /// The body of a request. Requests that the apiserver treats as long-running have no timeout, as in the apiserver.
    pub fn new(inner: B, info: &RequestInfo) -> Self {
        let is_bounded = !info.is_long() && !inner.is_end_stream();
        Self { is_bounded, ..Self::bounded(inner) }
    }

    /// A body that always has the timeout.
    pub fn bounded(inner: B) -> Self {
        Self { inner, is_bounded: true, late: None, spoilt: Spoilt::default() }
    }

    pub fn spoilt(&self) -> Spoilt {
        Arc::clone(&self.spoilt)
    }
}

impl<B> Body for Patient<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut frame = Pin::new(&mut this.inner).poll_frame(cx).map_err(Into::into);
        if frame.is_ready() {
            this.late = None;
        } else if this.is_bounded {
            let late = this.late.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
            frame = late.as_mut().poll(cx).map(|()| Some(Err(Late.into())));
        }
        if let Poll::Ready(Some(Err(error))) = &frame {
            this.spoilt.get_or_init(|| error.to_string());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod cut_tests;
#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    fn info(method: &str, path: &str) -> RequestInfo {
        RequestInfo::parse(method, path, "")
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_nothing_is_given_up() {
        let pods = "/api/v1/namespaces/a/pods";
        for (path, is_bounded) in [(pods, true), (&format!("{pods}/p/proxy/upload")[..], false)] {
            let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, BoxError>>(1);
            let body = StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
            let mut body = Patient::new(body, &info("POST", path));
            // A slow client is not late.
            for _ in 0..5 {
                sender.send(Ok(Frame::data("x".into()))).await.unwrap();
                body.frame().await.unwrap().unwrap();
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
            }
            let started = Instant::now();
            match tokio::time::timeout(10 * PATIENCE, body.frame()).await {
                Ok(end) => {
                    assert!(is_bounded && end.unwrap().unwrap_err().is::<Late>());
                    assert_eq!(started.elapsed(), PATIENCE);
                }
                Err(_) => assert!(!is_bounded),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_nobody_wants_is_not_late() {
        let (sender, receiver) = mpsc::channel::<Result<Frame<Bytes>, BoxError>>(1);
        let body = StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
        let mut body = Patient::bounded(body);
        tokio::time::sleep(10 * PATIENCE).await;
        sender.send(Ok(Frame::data("x".into()))).await.unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "x");
        drop(sender);
        assert!(body.frame().await.is_none());
        let none = Patient::new(Full::new(Bytes::new()), &info("POST", "/api/v1/namespaces"));
        assert!(none.is_end_stream() && !none.is_bounded);
    }
}
