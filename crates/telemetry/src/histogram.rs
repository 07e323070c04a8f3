//! Duration histograms with fixed buckets, which threads do not contend for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::stripes::Stripes;

/// A histogram of durations from a tenth of a millisecond to a minute. An observation costs two atomic additions. The
/// histogram of `prometheus_client` would take a lock. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Arc<Counts>);

/// The buckets, of which the last one has no upper bound, and the sum in nanoseconds.
type Counts = Stripes<{ NANOS + 1 }>;

/// Histograms with the same name and different values of one label.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    label: &'static str,
    histograms: Vec<(&'static str, Histogram)>,
}

/// Upper bounds, in microseconds.
const BOUNDS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

const BUCKETS: usize = BOUNDS.len() + 1;
const NANOS: usize = BUCKETS;

/// The values of a histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// In seconds.
    pub sum: f64,
    pub count: u64,
    /// The upper bound in seconds and the count of each bucket, not cumulative. The last bucket has no bound.
    pub buckets: Vec<(f64, u64)>,
}

/// Registers a family of histograms, one for each value of the label, as `informerd_{name}`.
pub fn register(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    label: &'static str,
    histograms: impl IntoIterator<Item = (&'static str, Histogram)>,
) {
    let family = Family { name, help, label, histograms: histograms.into_iter().collect() };
    registry.sub_registry_with_prefix("informerd").register_collector(Box::new(family));
}

// === impl Histogram ===

impl Histogram {
    pub fn observe(&self, duration: Duration) {
        self.observe_many(duration, 1);
    }

    /// Records the same duration `times` times.
    pub fn observe_many(&self, duration: Duration, times: u64) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| bound * 1_000 < nanos);
        self.0.add([(bucket, times), (NANOS, nanos.saturating_mul(times))]);
    }

    pub fn read(&self) -> Distribution {
        let bounds = BOUNDS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip((0..BUCKETS).map(|bucket| self.0.sum(bucket))).collect();
        Distribution {
            sum: Duration::from_nanos(self.0.sum(NANOS)).as_secs_f64(),
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

// === impl Distribution ===

impl Distribution {
    /// The observations of both, which have the same buckets.
    pub fn and(mut self, other: &Self) -> Self {
        self.sum += other.sum;
        self.count += other.count;
        for ((_, count), (_, more)) in self.buckets.iter_mut().zip(&other.buckets) {
            *count += more;
        }
        self
    }

    /// The observations that `earlier` does not have. `earlier` is the same histogram at an earlier moment, or empty.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.buckets.iter().map(|(_, count)| *count).chain(std::iter::repeat(0));
        let buckets: Vec<_> =
            self.buckets.iter().zip(before).map(|((bound, now), then)| (*bound, now.saturating_sub(then))).collect();
        Self { sum: self.sum - earlier.sum, count: buckets.iter().map(|(_, count)| count).sum(), buckets }
    }

    /// The duration in seconds that this part of the observations does not exceed, as Prometheus estimates it: evenly
    /// spread within a bucket, and the last bound for what is above it. `None` without observations.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = part * self.count as f64;
        let (mut below, mut from) = (0.0, 0.0);
        for (bound, count) in self.buckets.iter().filter(|_| self.count > 0) {
            let within = *count as f64;
            if bound.is_infinite() {
                return Some(from);
            }
            if within > 0.0 && below + within >= rank {
                return Some(from + (bound - from) * ((rank - below) / within).clamp(0.0, 1.0));
            }
            below += within;
            from = *bound;
        }
        None
    }
}

// === impl Family ===

impl Collector for Family {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, MetricType::Histogram)?;
        for (value, histogram) in &self.histograms {
            let read = histogram.read();
            let labels = [(self.label, *value)];
            let mut series = family.encode_family(&labels)?;
            series.encode_histogram::<NoLabelSet>(read.sum, read.count, &read.buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_buckets() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 70_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        histogram.observe_many(Duration::from_millis(2), 3);
        let read = histogram.read();
        let filled: Vec<_> = read.buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.0001, 2), (0.00025, 1), (0.0025, 3), (f64::INFINITY, 1)]);
        assert_eq!(read.count, 7);
        assert!((read.sum - 70.006_201).abs() < 1e-9, "{}", read.sum);
    }

    #[test]
    fn quantiles_are_those_of_the_observations_since() {
        let (http, grpc) = (Histogram::default(), Histogram::default());
        http.observe_many(Duration::from_secs(20), 1_000);
        let before = http.read().and(&grpc.read());
        assert_eq!(before.since(&before).quantile(0.5), None);
        http.observe_many(Duration::from_micros(200), 60);
        grpc.observe_many(Duration::from_millis(2), 40);
        let since = http.read().and(&grpc.read()).since(&before);
        assert_eq!((since.count, since.quantile(0.0)), (100, Some(0.0001)));
        let close = |part: f64, seconds: f64| {
            let found = since.quantile(part).unwrap();
            assert!((found - seconds).abs() < 1e-9, "{part}: {found}");
        };
        close(0.3, 0.000_175);
        close(0.6, 0.000_25);
        close(0.8, 0.001_75);
        close(1.0, 0.002_5);
        assert!((http.read().since(&Distribution::default()).sum - 20_000.012).abs() < 1e-6);
        http.observe_many(Duration::from_secs(90), 10_000);
        assert_eq!(http.read().quantile(0.99), Some(60.0), "the last bound");
    }
}
