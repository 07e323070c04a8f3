//! Response bodies, and responses in the apiserver's format.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};

use super::fault::Cut;
use super::net::{Connection, Order};
use crate::types::Status;

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Long enough for written data to reach the peer before its connection breaks.
const FLUSH: Duration = Duration::from_millis(50);

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn streamed(stream: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    StreamBody::new(stream.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync()
}

/// A body that is cut after its first half.
pub(super) fn cut(whole: &Bytes, how: Cut, connection: Arc<Connection>) -> Body {
    let half = whole.slice(..whole.len() / 2);
    streamed(
        stream::iter([half])
            .chain(stream::once(async move { finish(how, &connection).await }).filter_map(|end| async move { end })),
    )
}

/// Ends a body as requested: returns to end it normally, and never returns if the connection must break.
pub(super) async fn finish(how: Cut, connection: &Connection) -> Option<Bytes> {
    tokio::time::sleep(FLUSH).await;
    match how {
        Cut::End => return None,
        Cut::Fin => connection.order(Order::Fin),
        Cut::Rst => connection.order(Order::Rst),
    }
    std::future::pending().await
}

pub(super) fn json(code: StatusCode, body: Body) -> Response<Body> {
    typed(code, "application/json", body)
}

pub(super) fn typed(code: StatusCode, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    for (name, value) in [
        ("audit-id", uuid::Uuid::new_v4().to_string().as_str()),
        ("cache-control", "no-cache, private"),
        ("content-type", content_type),
        ("x-kubernetes-pf-flowschema-uid", "5f0a1d5e-0000-4000-a000-000000000001"),
        ("x-kubernetes-pf-prioritylevel-uid", "5f0a1d5e-0000-4000-a000-000000000002"),
    ] {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A Status response with the matching headers.
pub(super) fn status(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, full([&status.to_json()[..], b"\n"].concat()));
    if let Some(seconds) = status.details.as_ref().and_then(|details| details.retry_after_seconds) {
        response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
    }
    response
}

pub(super) fn text(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = typed(code, "text/plain; charset=utf-8", full(text.to_owned()));
    response.headers_mut().insert("x-content-type-options", http::HeaderValue::from_static("nosniff"));
    response
}
