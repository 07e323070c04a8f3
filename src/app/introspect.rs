//! The state of the daemon as the admin side shows it.

use std::cmp::Reverse;

use http::request::Parts;
use informerd_status::{self as status, Apiserver, Lists, Spared};
use tokio::time::Instant;

use super::collect::Traffic;
use super::explain::Explainer;
use crate::admin::{Explaining, Introspect, Plans, Totals};
use crate::apiserver::client::Upstream;
use crate::grpc::{self, GroupStats, Groups, pb::v1};
use crate::http::Client;
use crate::informer::{Factory, Informer, InformerKey};
use crate::meta::{Encoding, ResourceVersion};

/// The most pairs of client and reason that are shown.
const MOST_FORWARDS: usize = 50;

pub(super) struct Everything {
    pub(super) traffic: Traffic,
    pub(super) groups: Groups,
    pub(super) explainer: Explainer,
    pub(super) memory_limit: Option<u64>,
}

impl Introspect for Everything {
    fn lists(&self) -> Lists {
        let all = self.traffic.http.clients.list();
        Lists {
            caches: self.traffic.factory.informers().iter().map(|informer| cache(informer)).collect(),
            forwards: forwards(&all),
            clients: all.into_iter().map(client).collect(),
            queues: self.groups.stats().into_iter().map(queue).collect(),
        }
    }

    fn totals(&self) -> Totals {
        let Traffic { factory, reads, upstream, http, grpc } = &self.traffic;
        let now = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
        let traffic = self.traffic.counts();
        let [serve, wait, old, forward, refuse] = http.latencies.counts();
        Totals {
            server: upstream.authority().to_string(),
            spared: spared(factory, &traffic),
            traffic,
            plans: Plans { serve, wait, old, forward, refuse },
            lag: http.event_lag.read().and(&grpc.event_lag.read()),
            served: reads.local(),
            own: upstream.metrics().own(),
            forwarded: http.requests_forwarded.get(),
            refused: http.requests_refused.get(),
            connections: now(http.connections_open.get()),
            watches: now(http.watches_open.get()) + now(grpc.watches_open.get()),
            upstream_connections: now(upstream.metrics().connections.get()),
            upstream_in_flight: now(upstream.metrics().in_flight.get()),
            upstream_connect_errors: upstream.metrics().connect_errors.get(),
            memory_limit_bytes: self.memory_limit,
        }
    }

    fn apiserver(&self) -> Apiserver {
        apiserver(&self.traffic.upstream)
    }

    fn explain(&self, request: Parts) -> Explaining {
        self.explainer.ask(request)
    }
}

pub(super) fn apiserver(upstream: &Upstream) -> Apiserver {
    let health = upstream.health();
    Apiserver {
        reachable: health.reachable,
        since_seconds: health.since.elapsed().as_secs(),
        last_error: health.error.as_deref().unwrap_or_default().to_owned(),
        silent_seconds: upstream.metrics().heard.get().map(|at| at.elapsed().as_secs()),
    }
}

impl grpc::Introspect for Everything {
    fn informers(&self) -> Vec<v1::Informer> {
        let informers = self.traffic.factory.informers();
        // gRPC serves no tables, but it serves the objects in them.
        let doubles = |informer: &Informer| {
            let json = InformerKey { encoding: Encoding::Json, ..informer.key().clone() };
            informer.key().encoding == Encoding::Table && informers.iter().any(|other| *other.key() == json)
        };
        informers.iter().filter(|informer| !doubles(informer)).map(|informer| message(informer)).collect()
    }
}

/// What the apiserver was spared in all.
fn spared(factory: &Factory, traffic: &status::Traffic) -> Spared {
    let (events, deliveries_per_event) = (traffic.spared_events(), traffic.deliveries_per_event());
    let start = Spared { events, deliveries_per_event, ..Spared::default() };
    factory.balances().values().fold(start, |all, balance| Spared {
        requests: all.requests + balance.requests,
        bytes: all.bytes + balance.bytes,
        ..all
    })
}

fn client(client: Client) -> status::Client {
    let Client { address, user, program, protocol, requests, watches, bytes, forwarded } = client;
    let forwarded = forwarded.into_iter().map(|(_, count)| count).sum();
    status::Client { address, user, program, protocol: protocol.to_owned(), requests, watches, bytes, forwarded }
}

fn forwards(clients: &[Client]) -> Vec<status::Forward> {
    let mut all = Vec::new();
    for Client { address, user, program, protocol, forwarded, .. } in clients {
        all.extend(forwarded.iter().map(|(reason, count)| status::Forward {
            address: address.clone(),
            user: user.clone(),
            program: program.clone(),
            protocol: (*protocol).to_owned(),
            reason: reason.as_str().to_owned(),
            count: *count,
            cause: reason.cause().to_owned(),
            change: reason.change().to_owned(),
        }));
    }
    // A stable sort: equal counts stay in the order of the clients.
    all.sort_by_key(|forward| Reverse(forward.count));
    all.truncate(MOST_FORWARDS);
    all
}

/// Seconds since a point in time; zero if there is none.
fn seconds_since(at: Option<Instant>) -> u64 {
    at.map_or(0, |at| Instant::now().saturating_duration_since(at).as_secs())
}

fn cache(informer: &Informer) -> status::Cache {
    let stats = informer.cache().stats();
    let reflector = informer.status();
    let scope = &informer.key().scope;
    let count = |n: usize| n as u64;
    status::Cache {
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
        refuses: reflector.refuses().into_iter().map(str::to_owned).collect(),
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
        silent_seconds: Some(seconds_since(informer.heard())),
    }
}

fn queue(group: GroupStats) -> status::Queue {
    let count = |n: usize| n as u64;
    let GroupStats { name, owner, queue, objects, deletions } = group;
    status::Queue {
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
