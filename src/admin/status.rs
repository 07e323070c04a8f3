//! What the status page and `informerd status` show in addition to the informers.

use informerd_status::{Apiserver, Cache, Lists};
use serde::Serialize;

use super::outages::Outage;
use super::past::{Past, Point, now};
use super::{Introspect, Totals};
use crate::lifecycle::readiness::Registry;
use crate::telemetry;

/// The complete content of `/status.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    version: &'static str,
    /// Seconds since 1970.
    now: u64,
    ready: bool,
    /// What readiness waits for.
    pending: Vec<String>,
    /// Resident memory of the process; 0 if the system does not report it.
    resident_bytes: u64,
    #[serde(flatten)]
    totals: Totals,
    upstream: Apiserver,
    /// Data served from the caches is at most this old, in seconds.
    served_age_seconds: u64,
    #[serde(flatten)]
    lists: Lists,
    past: Vec<Point>,
    outages: Vec<Outage>,
}

// === impl Status ===

impl Status {
    /// With the points of the history that were recorded after `since`, in seconds since 1970.
    pub(super) fn now(readiness: &Registry, daemon: &dyn Introspect, past: &Past, since: u64) -> Self {
        let mut lists = daemon.lists();
        lists.caches = super::caches::sorted(lists.caches);
        let pending = readiness.checks().into_iter().filter(|check| check.pending.is_some());
        let pending: Vec<_> = pending.map(|check| check.name).collect();
        let (now, upstream) = (now(), daemon.apiserver());
        let outages = past.outages(now, &upstream);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            now,
            ready: pending.is_empty(),
            pending,
            resident_bytes: telemetry::resident_bytes().unwrap_or(0),
            totals: daemon.totals(),
            upstream,
            served_age_seconds: served_age(&lists.caches),
            lists,
            past: past.since(since),
            outages,
        }
    }
}

/// The age in seconds of the oldest state that is served: the time since the apiserver last reported on that cache.
fn served_age(caches: &[Cache]) -> u64 {
    caches.iter().filter(|cache| cache.ready).filter_map(|cache| cache.silent_seconds).max().unwrap_or(0)
}
