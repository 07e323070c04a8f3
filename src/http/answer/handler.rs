//! The interface of what answers requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};

use super::body::Body;
use super::request_body::RequestBody;
use crate::http::door::Connection;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers requests. Errors are answers too.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, request: Request<RequestBody>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>>;
}
