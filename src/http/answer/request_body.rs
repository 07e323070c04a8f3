//! The body of a request, whatever the protocol.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::body::BoxError;

/// The body of a request. The client may send more of it when a part was read (flow control).
#[derive(Debug)]
pub enum RequestBody {
    Http1(Incoming),
    Http2 {
        stream: RecvStream,
        /// What is left of it, if the client has said its length. The library compares it with what comes.
        left: Option<u64>,
        /// All data was read.
        is_over: bool,
    },
}

// === impl RequestBody ===

impl RequestBody {
    pub(in crate::http) fn http2(stream: RecvStream, headers: &HeaderMap) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self::Http2 { stream, left: length, is_over: false }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (stream, left, is_over) = match self.get_mut() {
            Self::Http1(body) => return Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Http2 { stream, left, is_over } => (stream, left, is_over),
        };
        if !*is_over {
            match ready!(stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    stream.flow_control().release_capacity(data.len()).ok();
                    *left = left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // All of it has come. The client may reset the stream then.
                Some(Err(_)) if *left == Some(0) => {
                    *is_over = true;
                    return Poll::Ready(None);
                }
                Some(Err(error)) if error.is_reset() => {
                    return Poll::Ready(Some(Err("the client broke off the request's body".into())));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => *is_over = true,
            }
        }
        stream
            .poll_trailers(cx)
            .map(|trailers| trailers.map(|trailers| trailers.map(Frame::trailers)).map_err(Into::into).transpose())
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2 { stream, left, is_over } => stream.is_end_stream() || *is_over && *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2 { left: Some(left), .. } => SizeHint::with_exact(*left),
            Self::Http2 { left: None, .. } => SizeHint::default(),
        }
    }
}
