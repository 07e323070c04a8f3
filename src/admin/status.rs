//! What the status page and `informerd status` show in addition to the informers.

use informerd_status::Apiserver;
use serde::Serialize;

use super::outages::Outage;
use super::past::{Past, Point, now};
use super::{CacheInfo, ClientInfo, ForwardInfo, Introspect, QueueInfo, Totals};
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
    caches: Vec<CacheInfo>,
    clients: Vec<ClientInfo>,
    forwards: Vec<ForwardInfo>,
    queues: Vec<QueueInfo>,
    past: Vec<Point>,
    outages: Vec<Outage>,
}

// === impl Status ===

impl Status {
    /// With the points of the history that were recorded after `since`, in seconds since 1970.
    pub(super) fn now(readiness: &Registry, daemon: &dyn Introspect, past: &Past, since: u64) -> Self {
        let caches = super::caches::sorted(daemon.caches());
        let pending: Vec<_> = readiness.pending().into_iter().map(|entry| entry.name.to_string()).collect();
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
            served_age_seconds: served_age(&caches),
            caches,
            clients: daemon.clients(),
            forwards: daemon.forwards(),
            queues: daemon.queues(),
            past: past.since(since),
            outages,
        }
    }
}

/// The age in seconds of the oldest state that is served: the time since the apiserver last reported on that cache.
fn served_age(caches: &[CacheInfo]) -> u64 {
    caches.iter().filter(|cache| cache.ready).map(|cache| cache.silent_seconds).max().unwrap_or(0)
}
