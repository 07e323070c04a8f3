//! The sender of a request, as far as its connection and its head tell.

use std::sync::Arc;

use http::header::HeaderMap;
use rustls::pki_types::CertificateDer;

use super::bearer;
use super::impersonation::impersonates;

/// How far a listener trusts its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every client that can connect may read what is cached. For loopback addresses and Unix sockets only.
    Trust,
    /// A client may read only what the apiserver allows it to.
    Delegated,
}

/// What is known about the sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub mode: Mode,
    /// The certificates that the client presented in the TLS handshake, its own first. They are not verified yet; the
    /// handshake has only proven that the client has the key.
    pub certificates: Option<&'a Arc<[CertificateDer<'static>]>>,
    /// The headers of the request, or its gRPC metadata.
    pub headers: &'a HeaderMap,
    /// Whether impersonation is decided here where possible; otherwise it is left to the apiserver. Not for callers that
    /// cannot be forwarded: they have been authenticated with [`super::Access::enter`] before anything else.
    pub may_impersonate: bool,
}

// === impl Caller ===

impl Caller<'_> {
    /// Whether only the apiserver can say who asks, on a listener that knows nobody. What two servers could read
    /// differently counts for callers that are never forwarded.
    pub(super) fn is_for_the_apiserver(&self) -> bool {
        impersonates(self.headers) || !self.may_impersonate && bearer::is_ambiguous(self.headers)
    }
}

#[cfg(test)]
#[path = "caller_tests.rs"]
mod tests;
