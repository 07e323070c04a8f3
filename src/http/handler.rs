//! The interface of what answers requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;

use super::body::Body;
use super::connection::Connection;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers requests. Errors are answers too.
pub trait Handler: Send + Sync + 'static {
    fn handle(&self, request: Request<Incoming>, connection: &Arc<Connection>) -> BoxFuture<Response<Body>>;
}
