//! The one body type of all answers.

use std::error::Error;

use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};

use crate::codec::Slices;

pub type BoxError = Box<dyn Error + Send + Sync>;

/// A body of shared slices: a list goes to the socket without being joined.
pub type Body = UnsyncBoxBody<Slices, BoxError>;

/// A body of known length.
pub fn full(slices: impl Into<Slices>) -> Body {
    Full::new(slices.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is all there but sent without its length.
pub fn chunked(slices: impl Into<Slices>) -> Body {
    StreamBody::new(stream::iter([Ok(Frame::data(slices.into()))])).boxed_unsync()
}

/// The same body sent without its length.
pub fn without_length(body: Body) -> Body {
    StreamBody::new(BodyStream::new(body)).boxed_unsync()
}

/// A body that comes from somewhere else and passes through, trailers included.
pub fn relayed<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_frame(|frame| frame.map_data(Slices::from)).map_err(Into::into).boxed_unsync()
}
