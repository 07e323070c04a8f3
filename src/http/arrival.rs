//! How clients are received that nobody has authenticated yet.

use http::{HeaderMap, Response, StatusCode};

use super::body::Body;
use super::server::Connection;
use super::service::Inner;
use crate::meta::Status;

// === impl Inner ===

impl Inner {
    /// Finds out who a newcomer is, before anything of its request is read or kept. What its request comes to is decided later
    /// and elsewhere.
    ///
    /// # Errors
    /// Nobody can tell, and too many that nobody can tell of are here already.
    pub(super) async fn welcome(&self, headers: &HeaderMap, connection: &Connection) -> Result<(), Box<Status>> {
        let Some(newcomer) = connection.newcomer.as_ref().filter(|newcomer| !newcomer.is_authenticated()) else {
            return Ok(());
        };
        match self.access.recognize(&connection.caller(headers)).await {
            Ok(()) => newcomer.authenticated(),
            Err(status) if status.code != 401 && !newcomer.go_on_unjudged() => return Err(status),
            // It is refused, or the apiserver is asked.
            Err(_) => {}
        }
        Ok(())
    }
}

/// Whether an answer says that nobody knows the client: by its status, or by that of a gRPC call.
pub(super) fn is_unauthenticated(response: &Response<Body>) -> bool {
    let grpc = response.headers().get("grpc-status").is_some_and(|status| status == "16");
    response.status() == StatusCode::UNAUTHORIZED || grpc
}
