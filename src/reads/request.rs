//! The requests of the read path.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::Format;
use crate::meta::{Gvr, ListOptions};

/// One get, list or watch, as parsed by its protocol. Options are decoded, but not yet defaulted or validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub gvr: Gvr,
    /// The namespace of the path; `None` for all namespaces and cluster-scoped types.
    pub namespace: Option<Arc<str>>,
    /// The name of the path: always for a get, and for the legacy single-object watch.
    pub name: Option<Arc<str>>,
    pub options: ListOptions,
    pub format: Format,
    /// The watch uses the deprecated `/watch/` prefix: its options then follow the rules of a list unless the query
    /// contains `watch` as well.
    pub legacy_watch: bool,
    /// Its client has its own credentials, which are not the daemon's, and the daemon does not know what they may read.
    pub own_credentials: bool,
    /// Its client accepts gzip.
    pub gzip: bool,
    /// It cannot be forwarded: its client is identified by a certificate, which the daemon cannot present.
    pub local: bool,
    /// The apiserver does not answer: the newest local state is good enough, whatever the other settings require.
    pub stale: bool,
    /// How long its client lets the apiserver take for the answer, if it said so.
    pub timeout: Option<Duration>,
}
