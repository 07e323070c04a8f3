//! The requests and answers of the forwarder, made of their parts.

use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderMap;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;

use super::admission::Admitted;
use super::paced::Placed;
use super::{BoxError, ForwardBody};
use crate::apiserver::client::ReqBody;
use crate::meta::RequestInfo;

/// Builds a new request from method, target, headers and body only, without state of the client's connection.
pub(super) fn rebuild(head: Parts, body: ReqBody) -> Request<ReqBody> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = head.uri;
    *request.headers_mut() = head.headers;
    request
}

/// The answer keeps its place until it is read, and its memory until it is taken.
pub(super) fn kept(response: Response<ForwardBody>, (place, held): Admitted) -> Response<ForwardBody> {
    let mut response = response.map(|body| ForwardBody::new(Placed::new(body, place)));
    if let Some(held) = held {
        response.extensions_mut().insert(Arc::new(held));
    }
    response
}

pub(super) fn answer(status: StatusCode, headers: HeaderMap, body: ForwardBody) -> Response<ForwardBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The resource name for the metrics of this request.
pub(super) fn resource_of(info: &RequestInfo) -> String {
    if info.is_resource && info.plain { info.gvr().group_resource() } else { String::new() }
}

pub(super) fn boxed<B>(body: B) -> ReqBody
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}
