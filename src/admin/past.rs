//! The history of the last hour, for the plots: the totals, and when the apiserver was unreachable.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use informerd_status::{Apiserver, Traffic};
use parking_lot::Mutex;
use serde::Serialize;

use super::outages::{Outage, Outages};
use super::{Introspect, Plans, Totals};
use crate::telemetry;
use crate::telemetry::histogram::Distribution;

/// How often the totals are recorded.
const EVERY: Duration = Duration::from_secs(5);
/// One hour of points: 90 KiB. The oldest are dropped.
const POINTS: usize = 720;

/// The totals at one point in time. Counters are since the start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Point {
    /// Seconds since 1970.
    at: u64,
    /// Requests.
    spared: i64,
    #[serde(flatten)]
    traffic: Traffic,
    plans: Plans,
    /// In seconds, of the deliveries since the point before. `None` if there were none.
    lag_p50: Option<f32>,
    lag_p99: Option<f32>,
    /// 0 if the system does not report it.
    resident_bytes: u64,
}

/// The last hour. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Past {
    points: Arc<Mutex<VecDeque<Point>>>,
    outages: Arc<Mutex<Outages>>,
}

// === impl Past ===

impl Default for Past {
    fn default() -> Self {
        Self { points: Arc::new(Mutex::new(VecDeque::with_capacity(POINTS))), outages: Arc::default() }
    }
}

impl Past {
    /// Records the totals periodically. Never returns.
    pub(super) async fn keep(self, daemon: Arc<dyn Introspect>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut lag = Distribution::default();
        loop {
            ticks.tick().await;
            let totals = daemon.totals();
            let now = now();
            self.outages.lock().note(now, &daemon.apiserver());
            self.remember(Point::of(now, &totals, &totals.lag.since(&lag)));
            lag = totals.lag;
        }
    }

    /// The points that were recorded later than this.
    pub(super) fn since(&self, at: u64) -> Vec<Point> {
        self.points.lock().iter().filter(|point| point.at > at).copied().collect()
    }

    /// The outages of the last hour, up to the current state.
    pub(super) fn outages(&self, now: u64, apiserver: &Apiserver) -> Vec<Outage> {
        let mut outages = self.outages.lock();
        outages.note(now, apiserver);
        outages.all()
    }

    fn remember(&self, point: Point) {
        let mut points = self.points.lock();
        if points.len() == POINTS {
            points.pop_front();
        }
        points.push_back(point);
    }
}

// === impl Point ===

impl Point {
    fn of(at: u64, totals: &Totals, lag: &Distribution) -> Self {
        let quantile = |part| lag.quantile(part).map(|seconds| seconds as f32);
        Self {
            at,
            spared: totals.spared.requests,
            traffic: totals.traffic,
            plans: totals.plans,
            lag_p50: quantile(0.5),
            lag_p99: quantile(0.99),
            resident_bytes: telemetry::resident_bytes().unwrap_or(0),
        }
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::histogram::Histogram;

    #[test]
    fn an_hour_is_kept_in_little_memory() {
        let past = Past::default();
        for at in 1..=1000 {
            let traffic = Traffic { sent_bytes: at * 2, ..Traffic::default() };
            past.remember(Point::of(at, &Totals { traffic, ..Totals::default() }, &Distribution::default()));
        }
        let points = past.since(0);
        assert_eq!(points.len(), POINTS);
        assert_eq!((points[0].at, points[POINTS - 1].traffic.sent_bytes, points[0].lag_p99), (281, 2000, None));
        let newest: Vec<_> = past.since(998).iter().map(|point| point.at).collect();
        assert_eq!(newest, [999, 1000]);
        let capacity = past.points.lock().capacity();
        assert_eq!(capacity * size_of::<Point>(), 90 << 10, "as the comment and the documentation say");
    }

    #[test]
    fn a_point_has_the_names_that_the_page_reads() {
        let lag = Histogram::default();
        lag.observe(Duration::from_millis(1));
        let totals = Totals { plans: Plans { wait: 7, ..Plans::default() }, ..Totals::default() };
        let point = serde_json::to_value(Point::of(9, &totals, &lag.read())).unwrap();
        let names: Vec<_> = point.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "answered asked at lagP50 lagP99 plans receivedBytes receivedEvents residentBytes sentBytes sentEvents spared";
        assert_eq!(names.join(" "), expected);
        assert_eq!(point["plans"]["wait"], 7);
        assert!((0.0005..=0.001).contains(&point["lagP99"].as_f64().unwrap()), "{point}");
    }
}
