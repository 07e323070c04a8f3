//! Watches that the apiserver answers through us. When the process ends they end too: between two events, as if the
//! apiserver had ended them, and not cut by the end of the drain.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http_body::{Body, Frame};

use super::ending::Ending;
use super::metrics::HttpMetrics;

/// A watch on its way through.
pub struct RelayedWatch<B> {
    /// `None` once it is over.
    inner: Option<B>,
    framing: Framing,
    ending: Ending,
    metrics: Arc<HttpMetrics>,
}

/// Where events end in the bytes of a stream, and how far the one at hand has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// JSON: each event is a line.
    Lines { between: bool },
    /// Protobuf: each event comes after its length, four bytes of it, the highest first.
    Lengths { length: [u8; 4], known: usize, left: usize },
}

// === impl RelayedWatch ===

impl<B> RelayedWatch<B> {
    pub fn new(inner: B, framing: Framing, ending: Ending, metrics: &Arc<HttpMetrics>) -> Self {
        Self { inner: Some(inner), framing, ending, metrics: Arc::clone(metrics) }
    }

    fn end(&mut self) {
        self.inner = None;
        self.metrics.watches_drained.inc();
    }
}

impl<B> Body for RelayedWatch<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        let over = this.ending.poll(cx);
        if over && this.inner.is_some() && this.framing.is_between() {
            this.end();
        }
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(cx);
        let Poll::Ready(Some(Ok(frame))) = polled else { return polled };
        match frame.into_data() {
            Ok(mut data) => {
                let last = this.framing.follow(&data);
                if over && let Some(last) = last {
                    data.truncate(last);
                    this.end();
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Err(frame) => Poll::Ready(Some(Ok(frame))),
        }
    }
}

// === impl Framing ===

impl Framing {
    /// Of a stream with this head; `None` where its events are not to be told apart.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let media_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        match media_type.split(';').next()?.trim() {
            "application/json" => Some(Self::Lines { between: true }),
            "application/vnd.kubernetes.protobuf" => Some(Self::Lengths { length: [0; 4], known: 0, left: 0 }),
            _ => None,
        }
    }

    fn is_between(&self) -> bool {
        match self {
            Self::Lines { between } => *between,
            Self::Lengths { known, left, .. } => *known == 0 && *left == 0,
        }
    }

    /// Takes the next bytes of the stream and tells where in them the last event ends that ends in them.
    fn follow(&mut self, data: &[u8]) -> Option<usize> {
        match self {
            Self::Lines { between } => {
                let last = memchr::memrchr(b'\n', data).map(|at| at + 1);
                if !data.is_empty() {
                    *between = last == Some(data.len());
                }
                last
            }
            Self::Lengths { length, known, left } => {
                let (mut at, mut last) = (0, None);
                while at < data.len() {
                    if *left > 0 {
                        let taken = (*left).min(data.len() - at);
                        *left -= taken;
                        at += taken;
                    } else {
                        length[*known] = data[at];
                        *known += 1;
                        at += 1;
                        if *known < length.len() {
                            continue;
                        }
                        *known = 0;
                        *left = u32::from_be_bytes(*length) as usize;
                    }
                    if *left == 0 {
                        last = Some(at);
                    }
                }
                last
            }
        }
    }
}

#[cfg(test)]
#[path = "relayed_watch_tests.rs"]
mod tests;
