//! The body type of all responses. The listeners have the same, so no layer converts the frames of a watch.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tonic::Status;

use crate::codec::Slices;

pub(in crate::grpc) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(in crate::grpc) type Body = UnsyncBoxBody<Slices, BoxError>;

/// A body that consists of plain bytes, such as those of the library.
pub(super) fn of_bytes<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_frame(|frame| frame.map_data(Slices::from)).map_err(Into::into).boxed_unsync()
}

/// The last frame of a call that ends with this status.
pub(in crate::grpc) fn trailers(status: &Status) -> Result<Frame<Slices>, BoxError> {
    let mut trailers = HeaderMap::new();
    status.add_header(&mut trailers)?;
    Ok(Frame::trailers(trailers))
}
