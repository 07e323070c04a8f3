//! Request and response bodies. A response body keeps its place on the connection until it is dropped or ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::{Lease, UpstreamMetrics};
use crate::upstream::error::{BoxError, Cause, UpstreamError};

/// The body of a request to the apiserver.
pub type ReqBody = UnsyncBoxBody<Bytes, BoxError>;

/// The body of a response from the apiserver, streamed as it arrives.
#[derive(Debug)]
pub struct UpstreamBody {
    inner: Incoming,
    lease: Option<Lease>,
    metrics: Arc<UpstreamMetrics>,
}

/// An empty body.
pub fn empty() -> ReqBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body that is complete.
pub fn full(bytes: impl Into<Bytes>) -> ReqBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

// === impl UpstreamBody ===

impl UpstreamBody {
    pub(super) fn new(inner: Incoming, lease: Lease) -> Self {
        let metrics = Arc::clone(lease.metrics());
        let mut body = Self { inner, lease: Some(lease), metrics };
        if body.inner.is_end_stream() {
            body.ended();
        }
        body
    }

    fn ended(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.finished();
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                self.metrics.received_bytes.inc_by(length as u64);
                self.metrics.heard.set(Instant::now());
                if self.inner.is_end_stream() {
                    self.ended();
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                // The lease is dropped without `finished`, so the connection is not used again.
                self.lease = None;
                Some(Err(UpstreamError::Body(Cause::new(error))))
            }
            None => {
                self.ended();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
