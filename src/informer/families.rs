//! The metrics of the caches, as metric families.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Balance, Factory, Informer};
use crate::cache::CacheStats;
use crate::telemetry::histogram;

/// Collects what is known at the time of a scrape.
struct Families(Factory);

/// One family: its name (without the prefix if that is ours), its help text, and how to read its number.
type PerCache = (&'static str, &'static str, fn(&CacheStats) -> u64);

/// The same for a number of a balance.
type PerBalance = (&'static str, &'static str, fn(&Balance) -> i64);

/// Gauges, because the cost of informers makes them fall, also below zero.
const SPARED: [PerBalance; 2] = [
    ("informerd_spared_requests", "Requests that the apiserver was spared since the start", |b| b.requests),
    ("informerd_spared_bytes", "Bytes of answers that the apiserver was spared since the start", |b| b.bytes),
];

const CACHE_GAUGES: &[PerCache] = &[
    ("cache_objects", "Objects in the cache", |s| s.objects as u64),
    ("cache_bytes", "Memory of the objects", |s| s.bytes as u64),
    ("cache_ready", "Whether the cache answers reads", |s| u64::from(s.state.is_ready())),
    ("cache_watchers", "Open watches", |s| s.watchers as u64),
    ("cache_watch_groups", "Distinct selections among the open watches", |s| s.groups as u64),
    ("cache_window_events", "Events in the sliding window", |s| s.window_events as u64),
    ("cache_window_bytes", "Memory of the window, without the objects in the cache", |s| s.window_bytes as u64),
    ("cache_window_seconds", "Age of the oldest event in the window", |s| s.window_age.as_secs()),
    ("apiserver_watch_cache_resource_version", "Revision up to which the cache is complete", |s| s.rv.get()),
];

const CACHE_COUNTERS: &[PerCache] = &[
    ("apiserver_watch_cache_events_received", "Events received from the apiserver", |s| s.events_total),
    ("cache_dispatched_events", "Events offered to watchers", |s| s.dispatched_total),
    ("cache_evaluations", "Selections evaluated on events", |s| s.evaluated_total),
    ("apiserver_watch_cache_initializations", "First lists and relists taken", |s| s.replaced_total),
    ("cache_writer_waits", "Times that the reflector waited for the dispatcher", |s| s.lagged_total),
    ("ended_watchers", "Watches ended by informerd and not by their client", |s| s.terminated_total),
    ("apiserver_terminated_watchers", "Watches ended because they were behind the window", |s| s.too_slow_total),
    ("bookmarks", "Bookmarks sent", |s| s.bookmarks_total),
    ("cache_backfills", "Attempts to backfill the window with events from before the first list", |s| {
        s.backfills_total
    }),
    ("cache_backfills_failed", "Backfill attempts that failed and left the window unchanged", |s| {
        s.backfills_failed_total
    }),
    ("cache_backfilled_events", "Events added to windows by backfill", |s| s.backfilled_events_total),
];

// === impl Factory ===

impl Factory {
    /// Registers the metrics of every cache and of this module.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Families(self.clone())));
        crate::cache::register(registry);
        let help = "How long reads waited for the proof that a cache is fresh enough";
        let proofs = self.proofs();
        let results = [("proved", proofs.proved.clone()), ("failed", proofs.failed.clone())];
        histogram::register(registry, "proof_duration_seconds", help, "result", results);
    }
}

// === impl Families ===

impl Families {
    fn caches(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let caches: Vec<_> = self.0.informers().into_iter().map(|i| (labels(&i), i.cache().stats(), i)).collect();
        for (families, kind) in [(CACHE_GAUGES, MetricType::Gauge), (CACHE_COUNTERS, MetricType::Counter)] {
            for (name, help, value) in families {
                let series = caches.iter().map(|(labels, stats, _)| (labels.clone(), value(stats)));
                family(encoder, name, help, kind, series)?;
            }
        }
        let now = Instant::now();
        let silent = caches.iter().filter_map(|(labels, _, informer)| {
            let heard = now.saturating_duration_since(informer.heard()?);
            Some((labels.clone(), heard.as_secs()))
        });
        let help = "Seconds since the apiserver last sent anything about the resource";
        family(encoder, "cache_silent_seconds", help, MetricType::Gauge, silent)?;
        let ready = || caches.iter().filter(|(_, stats, _)| stats.state.is_ready());
        let newest = ready().map(|(_, stats, _)| stats.rv.get()).max().unwrap_or_default();
        // Its own server may have shown a newer one than any cache has reached.
        let shown = |informer: &Informer| informer.probe.last_word().map_or(0, |word| word.rv.get());
        let behind =
            ready().map(|(labels, stats, informer)| (labels.clone(), newest.max(shown(informer)) - stats.rv.get()));
        let help =
            "Difference between the newest revision seen by any cache, or in an answer, and this cache's revision";
        family(encoder, "cache_revisions_behind", help, MetricType::Gauge, behind)?;
        let standing: Vec<_> = caches.iter().map(|(labels, _, i)| (labels, i.cache().standing())).collect();
        let listing = standing.iter().map(|(labels, standing)| ((*labels).clone(), standing.listing as u64));
        let help = "Open watches that are still sending their initial state";
        family(encoder, "cache_watchers_listing", help, MetricType::Gauge, listing)?;
        let late = standing.iter().map(|(labels, standing)| ((*labels).clone(), standing.behind as u64));
        let help = "Open watches with events that their client has not read yet";
        family(encoder, "cache_watchers_behind", help, MetricType::Gauge, late)?;
        let refused = caches.iter().map(|(labels, _, informer)| (labels.clone(), u64::from(informer.has_given_up())));
        let help =
            "Whether the resource is not cached because it does not fit into memory, or an object cannot be decoded";
        family(encoder, "cache_refused", help, MetricType::Gauge, refused)?;
        // Anybody may read metrics, so they name no objects.
        let undecodable = caches.iter().map(|(labels, _, i)| (labels.clone(), u64::from(i.status().undecodable)));
        let help = "Whether the resource is not cached because an object cannot be decoded; the log and status name it";
        family(encoder, "cache_undecodable", help, MetricType::Gauge, undecodable)?;
        let relists = caches.iter().map(|(labels, _, informer)| (labels.clone(), informer.status().relists));
        family(encoder, "reflector_relists", "Lists after the first", MetricType::Counter, relists)?;
        let silences = caches.iter().map(|(labels, _, informer)| (labels.clone(), informer.status().silences));
        let help = "Watches given up because they were open and did not deliver what the apiserver has";
        family(encoder, "reflector_silent_watches", help, MetricType::Counter, silences)
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.caches(&mut encoder)?;
        let (kind, help) = (MetricType::Gauge, "Informers that may run at once");
        let limit = encoder.encode_descriptor("informerd_informers_limit", help, None, kind)?;
        number(limit, kind, self.0.most_informers() as u64)?;
        let balances = self.0.balances();
        let named = balances.iter().filter(|(resource, _)| !resource.is_empty());
        let served = named.map(|(resource, balance)| (vec![("resource", resource.clone())], balance.reads));
        family(&mut encoder, "reads_served", "Reads answered from caches", MetricType::Counter, served)?;
        for (name, help, spared) in SPARED {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (resource, balance) in &balances {
                ConstGauge::new(spared(balance)).encode(family.encode_family(&[("resource", resource.as_str())])?)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Families")
    }
}

type Labels = Vec<(&'static str, String)>;

fn labels(informer: &Informer) -> Labels {
    let scope = &informer.key().scope;
    vec![
        ("group", informer.key().gvr.group.to_string()),
        ("version", informer.key().gvr.version.to_string()),
        ("resource", informer.key().gvr.resource.to_string()),
        ("namespace", scope.namespace.as_deref().unwrap_or("").to_owned()),
        ("selector", [&*scope.field_selector, &*scope.label_selector].join("")),
        ("encoding", informer.key().encoding.as_str().to_owned()),
    ]
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    series: impl Iterator<Item = (Labels, u64)>,
) -> fmt::Result {
    // A metric with the same meaning as one of the apiserver has the apiserver's name.
    let name = if name.starts_with("apiserver_") { name.to_owned() } else { format!("informerd_{name}") };
    let mut family = encoder.encode_descriptor(&name, help, None, kind)?;
    for (labels, value) in series {
        number(family.encode_family(&labels)?, kind, value)?;
    }
    Ok(())
}

fn number(encoder: MetricEncoder<'_>, kind: MetricType, value: u64) -> fmt::Result {
    match kind {
        MetricType::Gauge => ConstGauge::new(value as f64).encode(encoder),
        _ => ConstCounter::new(value).encode(encoder),
    }
}
