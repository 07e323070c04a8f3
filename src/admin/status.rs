//! What the status page and `informerd status` show in addition to the informers, and its history over the last hour.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::Serialize;

use super::{Apiserver, CacheInfo, ClientInfo, ForwardInfo, Introspect, Spared};
use crate::lifecycle::readiness::Registry;
use crate::telemetry;

/// How often the totals are recorded.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// One hour of points. The oldest are dropped.
const POINTS: usize = 720;

/// Counters since the start and gauges of the current state, for the whole process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Totals {
    /// The apiserver's address.
    pub server: String,
    /// The load that the apiserver was spared.
    pub spared: Spared,
    /// Reads answered from a cache.
    pub served: u64,
    /// Our own requests to the apiserver: lists, watches, probes, reviews and others.
    pub own: u64,
    /// Requests forwarded to the apiserver.
    pub forwarded: u64,
    /// Requests that informerd answered with a Status of its own.
    pub refused: u64,
    /// Client connections that are open now.
    pub connections: u64,
    /// Client watches that are open now.
    pub watches: u64,
    pub upstream_connections: u64,
    pub upstream_in_flight: u64,
    /// Failed attempts to connect to the apiserver.
    pub upstream_connect_errors: u64,
}

/// The counters at one point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Point {
    /// Seconds since 1970.
    at: u64,
    /// Requests.
    spared: i64,
    served: u64,
    own: u64,
    forwarded: u64,
}

/// The last hour. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    points: Arc<Mutex<VecDeque<Point>>>,
}

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
    past: Vec<Point>,
}

// === impl Past ===

impl Past {
    /// Records the totals periodically. Never returns.
    pub(super) async fn keep(self, daemon: Arc<dyn Introspect>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.remember(now(), &daemon.totals());
        }
    }

    fn remember(&self, at: u64, totals: &Totals) {
        let mut points = self.points.lock();
        if points.len() == POINTS {
            points.pop_front();
        }
        let Totals { served, own, forwarded, .. } = *totals;
        points.push_back(Point { at, spared: totals.spared.requests, served, own, forwarded });
    }
}

// === impl Status ===

impl Status {
    pub(super) fn now(readiness: &Registry, daemon: &dyn Introspect, past: &Past) -> Self {
        let caches = super::caches::sorted(daemon.caches());
        let pending: Vec<_> = readiness.pending().into_iter().map(|entry| entry.name.to_string()).collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            now: now(),
            ready: pending.is_empty(),
            pending,
            resident_bytes: telemetry::resident_bytes().unwrap_or(0),
            totals: daemon.totals(),
            upstream: daemon.apiserver(),
            served_age_seconds: served_age(&caches),
            caches,
            clients: daemon.clients(),
            forwards: daemon.forwards(),
            past: past.points.lock().iter().copied().collect(),
        }
    }
}

/// The age in seconds of the oldest state that is served: the time since the apiserver last reported on that cache.
fn served_age(caches: &[CacheInfo]) -> u64 {
    caches.iter().filter(|cache| cache.ready).map(|cache| cache.silent_seconds).max().unwrap_or(0)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept() {
        let past = Past::default();
        for at in 0..1000 {
            past.remember(at, &Totals { served: at * 2, ..Totals::default() });
        }
        let points = past.points.lock();
        assert_eq!(points.len(), POINTS);
        assert_eq!((points[0].at, points[POINTS - 1].served), (280, 1998));
    }
}
