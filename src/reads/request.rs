//! What a wire asks of the read path.

use std::sync::Arc;

use crate::codec::Format;
use crate::meta::{Gvr, ListOptions};

/// One get, list or watch, as parsed from its wire. Options are decoded, not yet defaulted or validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    pub gvr: Gvr,
    /// The namespace of the path; `None` for all namespaces and cluster-scoped types.
    pub namespace: Option<Arc<str>>,
    /// The name of the path: always for a get, and for the legacy single-object watch.
    pub name: Option<Arc<str>>,
    pub options: ListOptions,
    pub format: Format,
    /// The watch came by the deprecated `/watch/` prefix: its options then follow the rules of a list unless the
    /// query says `watch` as well.
    pub legacy_watch: bool,
    /// Its client has credentials of its own, and nobody here knows what they may read.
    pub own_credentials: bool,
    /// It cannot be forwarded: its client is known by a certificate, which nobody else can show.
    pub local: bool,
    /// The apiserver does not answer: the newest state that is here will do, whatever else the settings ask for.
    pub stale: bool,
}
