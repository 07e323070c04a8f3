//! The rooms' counters as metric families. Names and labels are a contract with dashboards and alerts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use super::introspect::spared;
use crate::auth::{Access, AuthMetrics};
use crate::authority::SignerMetrics;
use crate::cache::CacheStats;
use crate::grpc::GrpcMetrics;
use crate::http::HttpMetrics;
use crate::informer::{Factory, Informer};
use crate::passthrough::{Forward, ForwardMetrics};
use crate::reads::ReadMetrics;
use crate::upstream::Upstream;
use crate::upstream::metrics::UpstreamMetrics;

/// Reads the counters of all rooms when scraped.
pub(super) struct Rooms {
    pub(super) factory: Factory,
    pub(super) reads: Arc<ReadMetrics>,
    pub(super) http: Arc<HttpMetrics>,
    pub(super) grpc: Arc<GrpcMetrics>,
    pub(super) upstream: Upstream,
    pub(super) forward: Forward,
    pub(super) access: Access,
    pub(super) signer: Arc<SignerMetrics>,
}

/// One family: its name, without the prefix where that is ours, its help, and where its number stands.
type PerCache = (&'static str, &'static str, fn(&CacheStats) -> u64);
type PerProcess<T> = (&'static str, &'static str, fn(&T) -> u64);

const CACHE_GAUGES: &[PerCache] = &[
    ("cache_objects", "Objects in the cache", |s| s.objects as u64),
    ("cache_bytes", "Memory of the objects", |s| s.bytes as u64),
    ("cache_ready", "Whether the cache answers reads", |s| u64::from(s.state.is_ready())),
    ("cache_watchers", "Open watches", |s| s.watchers as u64),
    ("cache_watch_groups", "Distinct selections among the open watches", |s| s.groups as u64),
    ("cache_window_events", "Events in the sliding window", |s| s.window_events as u64),
    ("cache_window_bytes", "Memory the window holds beyond the objects", |s| s.window_bytes as u64),
    ("cache_window_seconds", "Age of the oldest event in the window", |s| s.window_age.as_secs()),
    ("apiserver_watch_cache_resource_version", "The revision the cache is complete up to", |s| s.rv.get()),
];

const CACHE_COUNTERS: &[PerCache] = &[
    ("apiserver_watch_cache_events_received", "Events received from the apiserver", |s| s.events_total),
    ("cache_dispatched_events", "Events offered to watchers", |s| s.dispatched_total),
    ("cache_evaluations", "Selections evaluated on events", |s| s.evaluated_total),
    ("apiserver_watch_cache_initializations", "First lists and relists taken", |s| s.replaced_total),
    ("cache_writer_waits", "Times the reflector waited for the dispatcher", |s| s.lagged_total),
    ("ended_watchers", "Watches ended although nobody asked for it", |s| s.terminated_total),
    ("apiserver_terminated_watchers", "Watches ended because the window had passed them", |s| s.too_slow_total),
    ("bookmarks", "Bookmarks sent", |s| s.bookmarks_total),
    ("cache_backfills", "Attempts to fill the window backwards, from before the first list", |s| s.backfills_total),
    ("cache_backfills_failed", "Of these, those that the window was left as it was after", |s| {
        s.backfills_failed_total
    }),
    ("cache_backfilled_events", "Events that windows were filled with backwards", |s| s.backfilled_events_total),
];

const HTTP_GAUGES: &[PerProcess<HttpMetrics>] = &[
    ("http_connections", "Open client connections", |m| unsigned(m.connections_open.get())),
    ("http_newcomers", "Connections of delegated listeners whose clients are not authenticated yet", |m| {
        unsigned(m.newcomers_open.get())
    }),
    ("http_watches", "Open watches that are served from a cache", |m| unsigned(m.watches_open.get())),
    ("http_gzip_memory_bytes", "Compressed answers in memory, kept or being sent", |m| unsigned(m.gzip_memory.get())),
    ("http_upgrades", "Open upgraded connections", |m| unsigned(m.upgrades_open.get())),
];

const HTTP_COUNTERS: &[PerProcess<HttpMetrics>] = &[
    ("http_connections_accepted", "Connections accepted", |m| m.connections_total.get()),
    ("http_connections_refused", "Connections closed because of a bound", |m| m.connections_refused.get()),
    ("http_newcomers_evicted", "Connections closed for newer ones before their clients were authenticated", |m| {
        m.newcomers_evicted.get()
    }),
    (
        "http_newcomers_refused",
        "Requests refused because they were too much for a client that is not authenticated",
        |m| m.newcomers_refused.get(),
    ),
    ("http_connection_errors", "Connections that ended with an error", |m| m.connection_errors.get()),
    ("http2_writes", "Writes to the sockets of HTTP/2 connections", |m| m.http2_writes.get()),
    ("http2_pieces", "Pieces that were gathered into writes of HTTP/2 connections", |m| m.http2_pieces.get()),
    ("http_accept_errors", "Failed accepts", |m| m.accept_errors.get()),
    ("http_tls_handshake_errors", "Failed TLS handshakes", |m| m.tls_handshake_errors.get()),
    ("http_requests_served", "Requests answered from a cache", |m| m.requests_served.get()),
    ("http_requests_forwarded", "Requests handed to the apiserver", |m| m.requests_forwarded.get()),
    ("http_requests_refused", "Requests answered with an error of informerd's own", |m| m.requests_refused.get()),
    ("http_watches_opened", "Watches opened from a cache", |m| m.watches_total.get()),
    ("http_watch_events", "Events sent to watches", |m| m.watch_events.get()),
    ("http_watch_bytes", "Bytes sent to watches", |m| m.watch_bytes.get()),
    ("http_watches_drained", "Watches ended by the drain", |m| m.watches_drained.get()),
    ("http_watches_failed", "Watches ended with an error event", |m| m.watches_failed.get()),
    ("http_list_objects", "Objects sent in lists", |m| m.list_objects.get()),
    ("http_list_bytes", "Bytes sent in lists", |m| m.list_bytes.get()),
    ("http_get_bytes", "Bytes sent in gets", |m| m.get_bytes.get()),
    ("http_gzip_responses", "Gets and lists sent compressed", |m| m.gzip_responses.get()),
    ("http_gzip_compressions", "Answers compressed; other compressed responses shared one", |m| {
        m.gzip_compressions.get()
    }),
    ("http_gzip_bytes_in", "Bytes that were compressed", |m| m.gzip_bytes_in.get()),
    ("http_gzip_bytes_out", "Bytes they were compressed to", |m| m.gzip_bytes_out.get()),
    ("access_log_lines", "Lines of the access log written", |m| load(&m.access_log.written)),
    ("access_log_dropped", "Lines of the access log that found no room or could not be written", |m| {
        load(&m.access_log.dropped)
    }),
    ("http_lists_stalled", "Lists, and gets over gRPC, given up because the client took no bytes", |m| {
        m.lists_stalled.get()
    }),
];

const UPSTREAM_STATE: &[PerProcess<Upstream>] = &[
    ("upstream_reachable", "Whether the last request to the apiserver got an answer", |u| u64::from(u.is_reachable())),
    (
        "upstream_unreachable_seconds",
        "Seconds for which no request to the apiserver has got an answer; 0 while they do",
        |u| {
            let health = u.health();
            if health.reachable { 0 } else { health.since.elapsed().as_secs() }
        },
    ),
    ("upstream_silent_seconds", "Seconds since anything came from the apiserver", |u| {
        u.metrics().heard().unwrap_or_else(|| u.health().since).elapsed().as_secs()
    }),
];

const GRPC_GAUGES: &[PerProcess<GrpcMetrics>] = &[
    ("grpc_watches", "Open gRPC watches", |m| unsigned(m.watches_open.get())),
    ("grpc_syncs", "Open gRPC streams of many watches", |m| unsigned(m.syncs_open.get())),
    ("grpc_pending_changes", "Changes that wait for the consumers of conflated watches", |m| unsigned(m.pending.get())),
    ("grpc_pending_bytes", "Objects that wait for the consumers of conflated watches", |m| {
        unsigned(m.pending_bytes.get())
    }),
];

const GRPC_COUNTERS: &[PerProcess<GrpcMetrics>] = &[
    ("grpc_calls", "gRPC calls", |m| m.calls.get()),
    ("grpc_calls_failed", "gRPC calls whose answer began with an error", |m| m.calls_failed.get()),
    ("grpc_list_objects", "Objects sent in gRPC lists", |m| m.list_objects.get()),
    ("grpc_list_bytes", "Bytes of objects sent in gRPC lists", |m| m.list_bytes.get()),
    ("grpc_watches_opened", "gRPC watches opened", |m| m.watches.get()),
    ("grpc_watch_frames", "Frames sent to gRPC watches", |m| m.frames.get()),
    ("grpc_watch_events", "Events sent to gRPC watches", |m| m.events.get()),
    ("grpc_watch_bytes", "Bytes sent to gRPC watches", |m| m.bytes.get()),
    ("grpc_watches_reset", "gRPC watches that had to begin anew", |m| m.resets.get()),
    ("grpc_conflated_events", "Events that a later one of the same object took the place of", |m| m.conflated.get()),
];

const UPSTREAM_GAUGES: &[PerProcess<UpstreamMetrics>] = &[
    ("upstream_connections", "Open connections to the apiserver", |m| load(&m.connections)),
    ("upstream_requests_in_flight", "Requests whose answer has not ended", |m| load(&m.in_flight)),
    ("upstream_kept_request_bytes", "Request bodies kept until their answer begins", |m| load(&m.kept_request_bytes)),
];

const UPSTREAM_COUNTERS: &[PerProcess<UpstreamMetrics>] = &[
    ("upstream_received_bytes", "Bytes of answers of the apiserver", |m| load(&m.received_bytes)),
    ("upstream_received_events", "Events and bookmarks received by informers", |m| load(&m.received_events)),
    ("upstream_connects", "Connections opened to the apiserver", |m| load(&m.connects)),
    ("upstream_connect_errors", "Failed connections to the apiserver", |m| load(&m.connect_errors)),
    ("upstream_contradictions", "Times the store contradicted an informer, as after a restore", |m| {
        load(&m.contradictions)
    }),
    ("upstream_seeks", "Attempts to reach an apiserver that did not answer, on a new connection", |m| load(&m.seeks)),
    ("upstream_early_retries", "Attempts of informers before the time that they back off for", |m| {
        load(&m.early_retries)
    }),
    ("upstream_resends", "Requests sent again because the apiserver had not begun them", |m| load(&m.resends)),
    ("upstream_credential_reloads", "Times the credentials were read anew", |m| load(&m.credential_reloads)),
];

const AUTH_GAUGES: &[PerProcess<AuthMetrics>] = &[
    ("auth_reviews_running", "Reviews under way", |m| load(&m.reviews_running)),
    ("auth_reviews_peak", "The most reviews that ever were under way", |m| load(&m.reviews_peak)),
    ("auth_reviews_waiting", "Requests that wait for their review's turn", |m| load(&m.reviews_waiting)),
    ("auth_rights_held", "Rights that open streams rest on, each of which is asked for again", |m| {
        load(&m.rights_held)
    }),
    ("auth_watches_live", "Watches for changed rights that are up to date", |m| load(&m.watches_live)),
];

const AUTH_COUNTERS: &[PerProcess<AuthMetrics>] = &[
    ("auth_token_reviews", "TokenReviews sent", |m| load(&m.token_reviews)),
    ("auth_access_reviews", "SubjectAccessReviews sent", |m| load(&m.access_reviews)),
    ("auth_pod_checks", "Questions whether the pod of a token is still there", |m| load(&m.pod_checks)),
    ("auth_review_failures", "Reviews that brought no answer", |m| load(&m.review_failures)),
    ("auth_review_overflows", "Reviews not sent because too many waited", |m| load(&m.review_overflows)),
    ("auth_user_overflows", "Requests refused because their user had its share of reviews or rights", |m| {
        load(&m.user_overflows)
    }),
    ("auth_allowed", "Reads allowed", |m| load(&m.allowed)),
    ("auth_denied", "Reads refused with 403", |m| load(&m.denied)),
    ("auth_unauthenticated", "Reads refused with 401", |m| load(&m.unauthenticated)),
    ("auth_undecided", "Reads left to the apiserver because nothing could be decided", |m| load(&m.undecided)),
    ("apiserver_audit_event", "Audit events written", |m| load(&m.audit.written)),
    ("audit_dropped", "Audit events that found no room or could not be written", |m| load(&m.audit.dropped)),
    ("auth_flushes", "Changes of rights that ended decisions", |m| load(&m.flushes)),
    ("auth_streams_revoked", "Open streams ended because the right was gone", |m| load(&m.streams_revoked)),
];

const SIGNER_COUNTERS: &[PerProcess<SignerMetrics>] = &[
    ("certificates_signed", "Requests of node agents for certificates that were signed", |m| load(&m.signed)),
    ("certificates_denied", "Requests for certificates that were denied", |m| load(&m.denied)),
];

const FORWARD_COUNTERS: &[PerProcess<ForwardMetrics>] = &[
    ("forward_shared_reads", "Forwarded reads that answered more than one client", |m| load(&m.shared_reads)),
    ("forward_shared_followers", "Clients answered by the read of another", |m| load(&m.shared_followers)),
    ("forward_given_up", "Answers given up for others because their clients had stopped to take them", |m| {
        load(&m.given_up)
    }),
    ("forward_shared_too_large", "Reads whose body was too large to be shared", |m| load(&m.shared_too_large)),
    ("forward_documents_confirmed", "Discovery documents that were unchanged", |m| load(&m.documents_confirmed)),
    ("forward_documents_read", "Discovery documents read anew", |m| load(&m.documents_read)),
    ("forward_documents_old", "Discovery documents told as they were last seen", |m| load(&m.documents_old)),
    ("forward_upgrades", "Connections upgraded", |m| load(&m.upgrades)),
];

// === impl Rooms ===

impl Rooms {
    fn caches(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let caches: Vec<_> = self.factory.informers().into_iter().map(|i| (labels(&i), i.cache().stats(), i)).collect();
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
        let help = "Seconds since the apiserver last said anything about the resource";
        family(encoder, "cache_silent_seconds", help, MetricType::Gauge, silent)?;
        let ready = || caches.iter().filter(|(_, stats, _)| stats.state.is_ready());
        let newest = ready().map(|(_, stats, _)| stats.rv.get()).max().unwrap_or_default();
        let behind = ready().map(|(labels, stats, _)| (labels.clone(), newest - stats.rv.get()));
        let help = "Revisions between the newest that any cache has come to and the one this cache is complete up to";
        family(encoder, "cache_revisions_behind", help, MetricType::Gauge, behind)?;
        let standing: Vec<_> = caches.iter().map(|(labels, _, i)| (labels, i.cache().standing())).collect();
        let listing = standing.iter().map(|(labels, standing)| ((*labels).clone(), standing.listing as u64));
        let help = "Open watches that still send the state they began with";
        family(encoder, "cache_watchers_listing", help, MetricType::Gauge, listing)?;
        let late = standing.iter().map(|(labels, standing)| ((*labels).clone(), standing.behind as u64));
        let help = "Open watches whose client has events to take";
        family(encoder, "cache_watchers_behind", help, MetricType::Gauge, late)?;
        let refused = caches.iter().map(|(labels, _, informer)| (labels.clone(), u64::from(informer.is_too_large())));
        let help = "Whether the state is not cached because memory has no room for it";
        family(encoder, "cache_refused", help, MetricType::Gauge, refused)?;
        let relists = caches.iter().map(|(labels, _, informer)| (labels.clone(), informer.status().relists));
        family(encoder, "reflector_relists", "Lists after the first", MetricType::Counter, relists)
    }
}

impl Collector for Rooms {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        self.caches(encoder)?;
        let reads = self
            .reads
            .series()
            .into_iter()
            .map(|(plan, reason, count)| (vec![("plan", plan.to_owned()), ("reason", reason.to_owned())], count));
        family(encoder, "reads", "Reads of resources, and how they were answered", MetricType::Counter, reads)?;
        let served = self.factory.served().into_iter();
        let served = served.map(|(resource, count)| (vec![("resource", resource.to_string())], count));
        family(encoder, "reads_served", "Reads answered from caches", MetricType::Counter, served)?;
        let spared = spared(&self.factory, &self.reads, self.upstream.metrics(), &self.http, &self.grpc);
        for (name, help, difference) in [
            ("spared_requests", "Requests the apiserver was spared since the start", spared.requests),
            ("spared_bytes", "Bytes of answers the apiserver was spared since the start", spared.bytes),
            ("spared_events", "Events the apiserver was spared since the start", spared.events),
        ] {
            // What informerd costs while nobody uses it makes it fall, also below zero.
            let name = full(name);
            let one = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            ConstGauge::new(difference).encode(one)?;
        }
        let requests = self.upstream.metrics().requests().into_iter().map(|(series, count)| {
            let labels = vec![
                ("verb", series.verb.as_str().to_owned()),
                ("resource", series.resource.to_string()),
                ("code", series.code.to_string()),
            ];
            (labels, count)
        });
        family(encoder, "upstream_requests", "Requests to the apiserver", MetricType::Counter, requests)?;
        process(encoder, HTTP_GAUGES, MetricType::Gauge, &*self.http)?;
        process(encoder, HTTP_COUNTERS, MetricType::Counter, &*self.http)?;
        process(encoder, GRPC_GAUGES, MetricType::Gauge, &*self.grpc)?;
        process(encoder, GRPC_COUNTERS, MetricType::Counter, &*self.grpc)?;
        process(encoder, FORWARD_COUNTERS, MetricType::Counter, self.forward.metrics())?;
        process(encoder, AUTH_GAUGES, MetricType::Gauge, &**self.access.metrics())?;
        process(encoder, AUTH_COUNTERS, MetricType::Counter, &**self.access.metrics())?;
        let seconds = Duration::from_nanos(load(&self.access.metrics().review_nanos)).as_secs_f64();
        let help = "Time that reviews took once it was their turn";
        encoder
            .encode_descriptor("informerd_auth_review_seconds", help, None, MetricType::Counter)
            .and_then(|one| ConstCounter::new(seconds).encode(one))?;
        let (credentials, decisions) = self.access.remembered();
        for (kind, help, count) in [
            ("auth_credentials", "Credentials remembered, as hashes", credentials),
            ("auth_decisions", "Decisions remembered", decisions),
        ] {
            family(encoder, kind, help, MetricType::Gauge, [(Labels::new(), count)].into_iter())?;
        }
        process(encoder, SIGNER_COUNTERS, MetricType::Counter, &*self.signer)?;
        process(encoder, UPSTREAM_STATE, MetricType::Gauge, &self.upstream)?;
        process(encoder, UPSTREAM_GAUGES, MetricType::Gauge, &**self.upstream.metrics())?;
        process(encoder, UPSTREAM_COUNTERS, MetricType::Counter, &**self.upstream.metrics())
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rooms")
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

/// What means the same as a metric of the apiserver has its name.
fn full(name: &str) -> String {
    if name.starts_with("apiserver_") { name.to_owned() } else { format!("informerd_{name}") }
}

fn process<T>(
    encoder: &mut DescriptorEncoder<'_>,
    families: &[PerProcess<T>],
    kind: MetricType,
    metrics: &T,
) -> fmt::Result {
    families.iter().try_for_each(|(name, help, value)| {
        let name = full(name);
        let one = encoder.encode_descriptor(&name, help, None, kind)?;
        number(one, kind, value(metrics))
    })
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    series: impl Iterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let name = full(name);
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

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
