//! The state of the daemon as the admin side shows it.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use informerd_status::{Apiserver, Spared, Traffic};
use tokio::time::Instant;

use super::explain::Explainer;
use crate::admin::{CacheInfo, ClientInfo, Explaining, ForwardInfo, Introspect, Plans, QueueInfo, Totals};
use crate::apiserver::client::Upstream;
use crate::apiserver::metrics::UpstreamMetrics;
use crate::grpc::{self, GroupStats, Groups, GrpcMetrics, pb::v1};
use crate::http::Client;
use crate::http::HttpMetrics;
use crate::informer::{Factory, Informer, InformerKey};
use crate::meta::{Encoding, ResourceVersion};
use crate::reads::Reads;

/// The most pairs of client and reason that are shown.
const MOST_FORWARDS: usize = 50;

pub(super) struct Everything {
    pub(super) factory: Factory,
    pub(super) reads: Reads,
    pub(super) upstream: Upstream,
    pub(super) http: Arc<HttpMetrics>,
    pub(super) grpc: Arc<GrpcMetrics>,
    pub(super) groups: Groups,
    pub(super) explainer: Explainer,
    pub(super) memory_limit: Option<u64>,
}

impl Introspect for Everything {
    fn caches(&self) -> Vec<CacheInfo> {
        self.factory.informers().iter().map(|informer| info(informer)).collect()
    }

    fn totals(&self) -> Totals {
        let upstream = self.upstream.metrics();
        let now = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
        let traffic = traffic(upstream, &self.http, &self.grpc);
        let [serve, wait, old, forward, refuse] = self.http.latencies.counts();
        Totals {
            server: self.upstream.authority().to_string(),
            spared: spared(&self.factory, &traffic),
            traffic,
            plans: Plans { serve, wait, old, forward, refuse },
            lag: self.http.event_lag.read().and(&self.grpc.event_lag.read()),
            served: self.reads.metrics().local(),
            own: upstream.own(),
            forwarded: self.http.requests_forwarded.get(),
            refused: self.http.requests_refused.get(),
            connections: now(self.http.connections_open.get()),
            watches: now(self.http.watches_open.get()) + now(self.grpc.watches_open.get()),
            upstream_connections: now(upstream.connections.get()),
            upstream_in_flight: now(upstream.in_flight.get()),
            upstream_connect_errors: upstream.connect_errors.get(),
            memory_limit_bytes: self.memory_limit,
        }
    }

    fn apiserver(&self) -> Apiserver {
        apiserver(&self.upstream)
    }

    fn explain(&self, request: Parts) -> Explaining {
        self.explainer.ask(request)
    }

    fn clients(&self) -> Vec<ClientInfo> {
        let info = |client: Client| {
            let Client { address, user, program, protocol, requests, watches, bytes, forwarded } = client;
            let forwarded = forwarded.into_iter().map(|(_, count)| count).sum();
            ClientInfo { address, user, program, protocol, requests, watches, bytes, forwarded }
        };
        self.http.clients.list().into_iter().map(info).collect()
    }

    fn forwards(&self) -> Vec<ForwardInfo> {
        let mut all = Vec::new();
        for Client { address, user, program, protocol, forwarded, .. } in self.http.clients.list() {
            all.extend(forwarded.into_iter().map(|(reason, count)| ForwardInfo {
                address: address.clone(),
                user: user.clone(),
                program: program.clone(),
                protocol,
                reason: reason.as_str(),
                count,
                cause: reason.cause(),
                change: reason.change(),
            }));
        }
        // A stable sort: equal counts stay in the order of the clients.
        all.sort_by_key(|forward| Reverse(forward.count));
        all.truncate(MOST_FORWARDS);
        all
    }

    fn queues(&self) -> Vec<QueueInfo> {
        self.groups.stats().into_iter().map(queue).collect()
    }
}

pub(super) fn apiserver(upstream: &Upstream) -> Apiserver {
    let health = upstream.health();
    Apiserver {
        reachable: health.reachable,
        since_seconds: health.since.elapsed().as_secs(),
        last_error: health.error.as_deref().unwrap_or_default().to_owned(),
        silent_seconds: upstream.metrics().heard().map(|at| at.elapsed().as_secs()),
    }
}

impl fmt::Debug for Everything {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Everything")
    }
}

impl grpc::Introspect for Everything {
    fn informers(&self) -> Vec<v1::Informer> {
        let informers = self.factory.informers();
        // gRPC serves no tables, but it serves the objects in them.
        let doubles = |informer: &Informer| {
            let json = InformerKey { encoding: Encoding::Json, ..informer.key().clone() };
            informer.key().encoding == Encoding::Table && informers.iter().any(|other| *other.key() == json)
        };
        informers.iter().filter(|informer| !doubles(informer)).map(|informer| message(informer)).collect()
    }
}

/// What the apiserver was spared in all.
fn spared(factory: &Factory, traffic: &Traffic) -> Spared {
    let (events, deliveries_per_event) = (traffic.spared_events(), traffic.deliveries_per_event());
    let start = Spared { events, deliveries_per_event, ..Spared::default() };
    factory.balances().values().fold(start, |all, balance| Spared {
        requests: all.requests + balance.requests,
        bytes: all.bytes + balance.bytes,
        ..all
    })
}

/// The traffic to clients and the traffic from the apiserver.
pub(super) fn traffic(upstream: &UpstreamMetrics, http: &HttpMetrics, grpc: &GrpcMetrics) -> Traffic {
    Traffic {
        answered: http.latencies.counts().iter().sum(),
        asked: upstream.own() + upstream.forwarded(),
        sent_bytes: http.clients.sent_bytes(),
        received_bytes: upstream.received_bytes.get(),
        sent_events: http.watch_events.get() + grpc.events.get(),
        received_events: upstream.received_events.get(),
    }
}

/// Seconds since a point in time; zero if there is none.
fn seconds_since(at: Option<Instant>) -> u64 {
    at.map_or(0, |at| Instant::now().saturating_duration_since(at).as_secs())
}

fn info(informer: &Informer) -> CacheInfo {
    let stats = informer.cache().stats();
    let reflector = informer.status();
    let scope = &informer.key().scope;
    let count = |n: usize| n as u64;
    CacheInfo {
        resource: informer.key().gvr.group_resource(),
        api_version: informer.key().gvr.api_version(),
        namespace: scope.namespace.as_deref().unwrap_or("").to_owned(),
        field_selector: scope.field_selector.to_string(),
        label_selector: scope.label_selector.to_string(),
        encoding: informer.key().encoding.as_str().to_owned(),
        ready: stats.state.is_ready(),
        state: reflector.state.to_owned(),
        step: reflector.step().to_owned(),
        retry_seconds: reflector.retry_at.map(|at| at.saturating_duration_since(Instant::now()).as_secs()),
        failing: reflector.failing.is_some(),
        refuses: reflector.refuses(),
        last_error: reflector.last_error.unwrap_or_default(),
        error_seconds: reflector.last_error_at.map(|at| at.elapsed().as_secs()),
        pinned: informer.is_pinned(),
        resource_version: stats.rv.to_string(),
        objects: count(stats.objects),
        bytes: count(stats.bytes),
        window_events: count(stats.window_events),
        window_bytes: count(stats.window_bytes),
        window_oldest: stats.window_oldest_rv.unwrap_or(ResourceVersion::ZERO).to_string(),
        window_seconds: stats.window_age.as_secs(),
        watchers: count(stats.watchers),
        groups: count(stats.groups),
        events: stats.events_total,
        relists: reflector.relists,
        silent_watches: reflector.silences,
        idle_seconds: seconds_since(reflector.last_event),
        silent_seconds: seconds_since(informer.heard()),
    }
}

fn queue(group: GroupStats) -> QueueInfo {
    let count = |n: usize| n as u64;
    let GroupStats { name, owner, queue, objects, deletions } = group;
    QueueInfo {
        name,
        user: owner,
        workers: count(queue.workers),
        objects: count(objects),
        depth: count(queue.depth),
        held: count(queue.held),
        delayed: count(queue.delayed),
        deletions: count(deletions),
        adds: queue.adds,
        retries: queue.retries,
        returned: queue.returned,
        longest_seconds: queue.longest,
    }
}

fn message(informer: &Informer) -> v1::Informer {
    let stats = informer.cache().stats();
    let reflector = informer.status();
    let (gvr, scope) = (&informer.key().gvr, &informer.key().scope);
    let count = |n: usize| n as u64;
    let silence = Instant::now().saturating_duration_since(informer.heard().unwrap_or(reflector.since));
    v1::Informer {
        resource: Some(v1::Resource {
            group: gvr.group.to_string(),
            version: gvr.version.to_string(),
            resource: gvr.resource.to_string(),
        }),
        namespace: scope.namespace.as_deref().unwrap_or("").to_owned(),
        label_selector: scope.label_selector.to_string(),
        field_selector: scope.field_selector.to_string(),
        encoding: match informer.key().encoding {
            Encoding::Json | Encoding::Table => v1::Encoding::Json,
            Encoding::Protobuf => v1::Encoding::KubeProtobuf,
        }
        .into(),
        synced: stats.state.is_ready(),
        state: reflector.state.to_owned(),
        last_error: reflector.last_error.unwrap_or_default(),
        pinned: informer.is_pinned(),
        objects: count(stats.objects),
        bytes: count(stats.bytes),
        resource_version: stats.rv.to_string(),
        oldest_resource_version: stats.window_floor.to_string(),
        upstream_silence: prost_types::Duration::try_from(silence).ok(),
        watchers: count(stats.watchers),
        events: stats.events_total,
        relists: reflector.relists,
    }
}
