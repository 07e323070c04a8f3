//! The body type that all answers share.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};

use crate::codec::Slices;

pub type BoxError = Box<dyn Error + Send + Sync>;

/// A body of shared slices: a list is written to the socket without being joined into one buffer.
pub type Body = UnsyncBoxBody<Slices, BoxError>;

/// A body of known length.
pub fn full(slices: impl Into<Slices>) -> Body {
    Full::new(slices.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is complete but is sent without its length.
pub fn chunked(slices: impl Into<Slices>) -> Body {
    StreamBody::new(stream::iter([Ok(Frame::data(slices.into()))])).boxed_unsync()
}

/// The same body sent without its length.
pub fn without_length(body: Body) -> Body {
    StreamBody::new(BodyStream::new(body)).boxed_unsync()
}

/// The same body. It keeps what there is to keep alive until it ends.
pub fn with<T: Send + 'static>(body: Body, kept: Option<T>) -> Body {
    let Some(kept) = kept else { return body };
    body.map_frame(move |frame| {
        let _kept = &kept;
        frame
    })
    .boxed_unsync()
}

/// A body that is relayed from elsewhere, trailers included.
pub fn relayed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    NotEmpty { inner: body }.map_frame(|frame| frame.map_data(Slices::from)).map_err(Into::into).boxed_unsync()
}

/// A body without empty frames. The last frame from upstream is often empty, and would be passed on as an empty frame
/// before the end. A client that uses h2 (all Rust clients) accepts a hundred of these over the life of a connection,
/// and then closes the connection.
struct NotEmpty<B> {
    inner: B,
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
