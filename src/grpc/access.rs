//! Who calls, and what it may read: asked before anything is looked up.

use tonic::{Request, Status};

use crate::reads::Selection;

/// Whoever calls. The wiring puts it into a request's extensions.
///
/// Listeners without an authenticator are open to loopback and to Unix sockets only, and whoever reaches one may read
/// what is cached; the documentation says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {}

/// The kind of read, as an authorizer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
}

/// The one place where a call's identity is found.
///
/// # Errors
/// UNAUTHENTICATED.
#[expect(clippy::unnecessary_wraps, reason = "an authenticator refuses here")]
pub(super) fn authenticate<T>(request: &Request<T>) -> Result<Caller, Status> {
    Ok(request.extensions().get::<Caller>().cloned().unwrap_or_default())
}

/// The one place where a selection is authorized, before any lookup.
///
/// # Errors
/// PERMISSION_DENIED.
#[expect(clippy::unused_async, reason = "an authorizer asks here")]
pub(super) async fn authorize(_caller: &Caller, _verb: Verb, _selection: &Selection) -> Result<(), Status> {
    Ok(())
}
