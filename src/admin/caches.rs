//! The visible state of the daemon: an entry for each informer, and totals.

use http::request::Parts;
use informerd_status::{Apiserver, Cache, Lists};

use super::{Explaining, Totals};

/// Provides the state of everything without waiting.
pub(crate) trait Introspect: Send + Sync + 'static {
    fn lists(&self) -> Lists;
    fn totals(&self) -> Totals;
    fn apiserver(&self) -> Apiserver;

    /// Predicts how this request would be answered, without executing it.
    fn explain(&self, request: Parts) -> Explaining;
}

/// Sorts by resource, namespace and encoding.
pub(super) fn sorted(mut caches: Vec<Cache>) -> Vec<Cache> {
    caches.sort_by(|a, b| (&a.resource, &a.namespace, &a.encoding).cmp(&(&b.resource, &b.namespace, &b.encoding)));
    caches
}
