//! How clients that are not authenticated yet are received.

use http::HeaderMap;

use super::door::Connection;
use super::service::ServiceInner;
use crate::meta::Status;

// === impl ServiceInner ===

impl ServiceInner {
    /// Authenticates the client of a new connection before any body of its request is read or kept. The answer to the
    /// request is decided later and elsewhere.
    ///
    /// # Errors
    /// The client cannot be authenticated now, and too many such clients are connected already.
    pub(super) async fn welcome(&self, headers: &HeaderMap, connection: &Connection) -> Result<(), Box<Status>> {
        let Some(newcomer) = connection.newcomer.as_ref().filter(|newcomer| !newcomer.is_authenticated()) else {
            return Ok(());
        };
        match self.access.recognize(&connection.caller(headers)).await {
            Ok(()) => newcomer.authenticated(),
            Err(status) if status.code != 401 && !newcomer.go_on_unjudged() => return Err(status),
            // Either the request is refused later, or the apiserver is asked.
            Err(_) => {}
        }
        Ok(())
    }
}
