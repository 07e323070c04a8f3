//! Response bodies. Each keeps its place on the connection until it is dropped or ends.
//!
//! The library ends a body over HTTP/2 also where its stream is reset with NO_ERROR: a server may stop an upload so, once
//! it has answered (RFC 9113, 8.1). In the middle of a body, only a part has come, see [`is_whole`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::lease::Lease;
use crate::error::{Cause, CutOff, UpstreamError};
use crate::meter::Meter;
use crate::metrics::UpstreamMetrics;

/// The body of a response from the apiserver, streamed as it arrives. A reader that stops holds the apiserver back by the
/// flow control of the connection (back-pressure).
#[derive(Debug)]
pub struct UpstreamBody {
    inner: Incoming,
    version: Version,
    lease: Option<Lease>,
    metrics: Arc<UpstreamMetrics>,
    meter: Option<Arc<Meter>>,
}

/// Whether a body of the library, which has given its last frame, has come to its end: to END_STREAM, to the length that
/// its headers name, or to the end of an HTTP/1.1 message.
fn is_whole(body: &impl Body, version: Version) -> bool {
    body.is_end_stream() || body.size_hint().exact().map_or(version != Version::HTTP_2, |left| left == 0)
}

// === impl UpstreamBody ===

impl UpstreamBody {
    pub(super) fn new(inner: Incoming, version: Version, lease: Lease) -> Self {
        let metrics = Arc::clone(&lease.metrics);
        let mut body = Self { inner, version, lease: Some(lease), metrics, meter: None };
        if body.inner.is_end_stream() {
            body.ended();
        }
        body
    }

    pub(super) fn metered(self, meter: Option<Arc<Meter>>) -> Self {
        Self { meter, ..self }
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
                if let Some(meter) = &self.meter {
                    meter.received(length);
                }
                self.metrics.heard.set(Instant::now());
                if self.inner.is_end_stream() {
                    self.ended();
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                // Without `finished`, the connection is not used again.
                if let Some(lease) = self.lease.take() {
                    lease.broke();
                }
                Some(Err(UpstreamError::Body(Cause::new(error))))
            }
            None if is_whole(&self.inner, self.version) => {
                self.ended();
                None
            }
            None => {
                self.lease = None;
                Some(Err(UpstreamError::Body(Cause::new(CutOff))))
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

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
