//! The metrics of the work queues. Metrics that client-go also has use the same names, so that existing dashboards
//! work.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::{GroupStats, Groups};
use crate::workqueue::{Histogram, QueueStats};

/// Reads the counters of all groups when scraped.
struct Queues(Groups);

type Gauge = (&'static str, &'static str, fn(&GroupStats) -> f64);
type Counter = (&'static str, &'static str, fn(&GroupStats) -> u64);
type Distribution = (&'static str, &'static str, fn(&QueueStats) -> &Histogram);

const GAUGES: &[Gauge] = &[
    ("workqueue_depth", "Keys that are ready and not held by a worker", |g| g.queue.depth as f64),
    ("workqueue_unfinished_work_seconds", "Total time for which workers have held their present keys", |g| {
        g.queue.unfinished
    }),
    (
        "workqueue_longest_running_processor_seconds",
        "Time for which the longest-held key has been held by its worker",
        |g| g.queue.longest,
    ),
    ("informerd_queue_workers", "Workers of the group", |g| g.queue.workers as f64),
    ("informerd_queue_held", "Keys held by workers", |g| g.queue.held as f64),
    ("informerd_queue_delayed", "Keys that are due at a later time", |g| g.queue.delayed as f64),
    ("informerd_queue_objects", "Objects that the group selects", |g| g.objects as f64),
    ("informerd_queue_deletions", "Deletions waiting to be handled", |g| g.deletions as f64),
];

const COUNTERS: &[Counter] = &[
    ("workqueue_adds", "Keys queued", |g| g.queue.adds),
    ("workqueue_retries", "Keys queued for a later time", |g| g.queue.retries),
    ("informerd_queue_returned", "Keys returned because their worker disconnected", |g| g.queue.returned),
];

const DISTRIBUTIONS: &[Distribution] = &[
    ("workqueue_queue_duration_seconds", "How long keys wait for a worker", |q| &q.queue_duration),
    ("workqueue_work_duration_seconds", "How long workers hold keys", |q| &q.work_duration),
];

// === impl Groups ===

impl Groups {
    /// Registers the metrics of every group.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Queues(self.clone())));
    }
}

// === impl Queues ===

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let groups = self.0.stats();
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for group in &groups {
                ConstGauge::new(value(group)).encode(family.encode_family(&labels(group))?)?;
            }
        }
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for group in &groups {
                ConstCounter::new(value(group)).encode(family.encode_family(&labels(group))?)?;
            }
        }
        for (name, help, value) in DISTRIBUTIONS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for group in &groups {
                let histogram = value(&group.queue);
                let (sum, count, buckets) = (histogram.sum(), histogram.count(), histogram.buckets());
                let labels = labels(group);
                family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

/// The labels that client-go uses for its queues. Groups of delegated listeners also have the label `user`.
fn labels(group: &GroupStats) -> Vec<(&'static str, String)> {
    let mut labels = vec![("name", group.name.clone())];
    if !group.owner.is_empty() {
        labels.push(("user", group.owner.clone()));
    }
    labels
}
