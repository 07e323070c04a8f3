//! The body type that all answers share.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use futures_util::stream;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};

use crate::codec::Slices;
use crate::http::record::Counting;

pub type BoxError = Box<dyn Error + Send + Sync>;

/// A body of shared slices: a list is written to the socket without being joined into one buffer.
#[derive(Debug)]
pub struct Body {
    /// Counts the bytes for the client. `None` until the head of the answer is final. It is here and not in a body around
    /// this one, because each box costs time with each event of a watch.
    counting: Option<Counting>,
    inner: UnsyncBoxBody<Slices, BoxError>,
}

/// A body of known length.
pub fn full(slices: impl Into<Slices>) -> Body {
    Body::new(Full::new(slices.into()).map_err(|never| match never {}))
}

/// A body that is complete but is sent without its length.
pub fn chunked(slices: impl Into<Slices>) -> Body {
    Body::new(StreamBody::new(stream::iter([Ok(Frame::data(slices.into()))])))
}

/// The same body sent without its length.
pub fn without_length(body: Body) -> Body {
    Body::new(StreamBody::new(BodyStream::new(body)))
}

/// The same body. It keeps what there is to keep alive until it ends.
pub fn with<T: Send + 'static>(body: Body, kept: Option<T>) -> Body {
    let Some(kept) = kept else { return body };
    Body::new(body.map_frame(move |frame| {
        let _kept = &kept;
        frame
    }))
}

/// A body that is relayed from elsewhere, trailers included.
pub fn relayed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    Body::new(NotEmpty { inner: body }.map_frame(|frame| frame.map_data(Slices::from)).map_err(Into::into))
}

/// A body without empty frames. The last frame from upstream is often empty, and would be passed on as an empty frame
/// before the end. A client that uses h2 (all Rust clients) accepts a hundred of these over the life of a connection,
/// and then closes the connection.
struct NotEmpty<B> {
    inner: B,
}

// === impl Body ===

impl Body {
    pub fn new(body: impl http_body::Body<Data = Slices, Error = BoxError> + Send + 'static) -> Self {
        body.boxed_unsync().into()
    }

    /// The same body. Its bytes are counted.
    pub(in crate::http) fn counted(self, counting: Counting) -> Self {
        Self { counting: Some(counting), ..self }
    }
}

impl From<UnsyncBoxBody<Slices, BoxError>> for Body {
    fn from(inner: UnsyncBoxBody<Slices, BoxError>) -> Self {
        Self { counting: None, inner }
    }
}

impl http_body::Body for Body {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if let Some(counting) = &self.counting
            && let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            counting.sent(data.remaining());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

// === impl NotEmpty ===

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for NotEmpty<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
            let is_empty = matches!(&frame, Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty));
            if !is_empty {
                return Poll::Ready(frame);
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::HeaderMap;

    use super::*;

    #[tokio::test]
    async fn what_is_relayed_has_no_empty_frames() {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", http::HeaderValue::from_static("1"));
        let data = ["", "a", "", "", "b", ""].map(|data| Frame::data(Bytes::from_static(data.as_bytes())));
        let frames = data.into_iter().chain([Frame::trailers(trailers.clone())]).map(Ok::<_, Infallible>);
        let mut body = relayed(StreamBody::new(stream::iter(frames)));
        let mut seen = Vec::new();
        while let Some(frame) = body.frame().await {
            match frame.unwrap().into_data() {
                Ok(data) => seen.push(data.len()),
                Err(frame) => assert_eq!(frame.into_trailers().unwrap(), trailers),
            }
        }
        assert_eq!(seen, [1, 1]);
    }
}
