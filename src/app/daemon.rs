//! The daemon: builds every module from the configuration and connects them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::certificates::Validity;
use super::clock;
use super::collect::{self, Traffic};
use super::convert;
use super::drop_in::DropIn;
use super::explain::Explainer;
use super::introspect::Everything;
use super::memory::Memory;
use super::process::Context;
use super::revisions::Revisions;
use super::typed::{Calls, KubeSystem};
use crate::admin::Admin;
use crate::apiserver::client::{ConfigSource, Upstream};
use crate::apiserver::discovery::Discovery;
use crate::auth::audit::Audit;
use crate::auth::{Access, AuthConfig, Mode};
use crate::config::Config;
use crate::grpc::{Groups, Grpc, GrpcMetrics, GrpcParts};
use crate::http::Guard;
use crate::http::service::{Service, ServiceParts};
use crate::http::{AccessLog, HttpMetrics, ListenAddr, Server};
use crate::informer::{Factory, Informer, informers_in};
use crate::lifecycle;
use crate::lifecycle::backoff::Backoff;
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::readiness::Latch;
use crate::memory::StallGuards;
use crate::meta::Gvr;
use crate::packing::Packing;
use crate::passthrough::{Forward, ForwardConfig};
use crate::reads::Reads;
use crate::snapshots::{Disk, Snapshots};

/// A running daemon. It serves until its drain is complete. Clones share it.
#[derive(Clone)]
pub struct Daemon {
    /// The listeners as bound: port 0 is replaced by the assigned port.
    pub listen: Vec<ListenAddr>,
    /// The CA of the self-issued certificate, if there is one.
    pub ca_file: Option<PathBuf>,
    pub admin: SocketAddr,
    pub factory: Factory,
    pub reads: Reads,
    pub upstream: Upstream,
    pub packing: Packing,
    pub access: Access,
    pub http: Arc<HttpMetrics>,
    pub grpc: Arc<GrpcMetrics>,
    _admin: Arc<Admin>,
}

// === impl Daemon ===

impl Daemon {
    /// Binds the listeners and starts to serve. The apiserver need not be reachable yet. Until it is, requests that
    /// must be forwarded are answered with 503, and the readiness probe shows what is pending. Nobody can connect to a
    /// listener before it can answer.
    ///
    /// # Errors
    /// Credentials cannot be read, certificates cannot be loaded, or addresses cannot be bound.
    pub async fn start(config: &Config, source: ConfigSource, context: &Context) -> anyhow::Result<Self> {
        let Context { drain, fatal, readiness, metrics, hangups } = context;
        let http_metrics = Arc::<HttpMetrics>::default();
        let grpc_metrics = Arc::<GrpcMetrics>::default();

        // Bind first: a port in use is the most common mistake, so it should be reported first.
        let server = Server::bind(config.http.clone(), http_metrics.clone())?;
        let (listen, ca_file) = (server.addresses(), server.ca_file());
        let memory = Memory::of(&config.memory);
        let limit = memory.ledger.pressure().limit();
        let most = config.informer.max_informers.unwrap_or_else(|| informers_in(limit));
        let upstream = Upstream::new(source.clone(), memory.upstream(most)).await?;
        lifecycle::spawn_critical("upstream-cluster", stays(upstream.moved()), fatal);
        let discovery = Discovery::new(upstream.clone());
        lifecycle::spawn("clock", clock::watch(drain.clone()));
        let snapshots = config.snapshots.clone().map(|config| {
            let disk = Disk::new(config.dir.clone());
            Snapshots::new(config, disk)
        });
        let factory = Factory::new(
            convert::factory(config, &memory.budget, &memory.packing, snapshots.clone(), most),
            upstream.clone(),
            discovery.clone(),
            fatal.clone(),
            drain.clone(),
        );
        let reads = Reads::new(config.reads.clone(), factory.clone());
        let observer = Arc::new(Revisions { floors: reads.floors().clone(), factory: factory.clone() });
        let forward_config = ForwardConfig {
            lend: config.lend_identity,
            old_documents: config.reads.modes.while_away,
            ..memory.forward()
        };
        let forward = Forward::new(forward_config, upstream.clone(), observer);
        lifecycle::spawn("memory", memory.clone().watch(forward.clone(), drain.clone()));
        let given_up = forward.clone().give_up(config.http.write_stall_timeout);
        lifecycle::spawn_supervised("stalled-answers", given_up, fatal);

        let delegated = config.http.listen.iter().any(|address| address.mode() == Mode::Delegated);
        let auth = AuthConfig { max_user_streams: memory.streams_of_a_user(), ..config.auth.clone() };
        // Whether other replicas reach the apiserver is not known here yet.
        let others = watch::channel(false).1;
        let access = if delegated { Access::delegated(&auth, &upstream, others, fatal)? } else { Access::trusting() };
        let access = access.knowing_ourselves(&auth, &upstream)?;

        let audit = match &config.audit {
            Some(audit) => Audit::start(audit, access.metrics(), hangups, fatal)?,
            None => Audit::off(),
        };
        let access_log = match &config.access_log {
            Some(to) => AccessLog::start(to, Arc::clone(&http_metrics.access_log), hangups, fatal)?,
            None => AccessLog::off(),
        };

        let signer_metrics = super::authority::start(config, &upstream, source, server.certificates(), context);
        if let (Some(directory), Some(ca)) = (&config.drop_in_dir, &ca_file) {
            let drop_in = DropIn::new(directory.clone(), ca.clone());
            lifecycle::spawn_supervised("drop-in", drop_in.run(readiness.latch("drop-in")), fatal);
        }
        let latches = Latches {
            apiserver: Some(readiness.latch("apiserver")),
            pinned: pinned(config).map(|name| (name.clone(), Some(readiness.latch(name)))).collect(),
        };
        let groups = Groups::new(config.queues.clone(), reads.clone(), drain.clone());
        let traffic = &Traffic {
            factory: factory.clone(),
            reads: reads.metrics().clone(),
            upstream: upstream.clone(),
            http: http_metrics.clone(),
            grpc: grpc_metrics.clone(),
        };
        metrics.register_with(|registry| {
            collect::register(registry, &access, &signer_metrics, &forward, &groups, traffic);
        });
        metrics.register(Validity { serving: server.certificates(), upstream: upstream.clone() });
        metrics.register(memory.clone());
        metrics.register(memory.packing.clone());
        let kept = snapshots.as_ref().map(|snapshots| snapshots.metrics().clone()).unwrap_or_default();
        metrics.register_with(|registry| kept.register(registry));
        let everything = Arc::new(Everything {
            traffic: traffic.clone(),
            groups: groups.clone(),
            explainer: Explainer::start(reads.clone(), config.http.listen.iter().map(ListenAddr::mode).collect()),
            memory_limit: limit,
        });
        let admin = Admin::start(&config.admin, readiness.clone(), metrics.clone(), everything.clone(), fatal)?;
        if let Some(address) = admin.probes {
            tracing::info!(%address, "probes");
        }

        let stall_guards = StallGuards::default();
        let lists_stalled = http_metrics.lists_stalled.clone();
        let stalled = move |stalled| _ = lists_stalled.inc_by(stalled);
        let room = memory.clone().make_room(forward.clone(), stall_guards.clone(), stalled);
        lifecycle::spawn_supervised("room", room, fatal);
        let grpc = Grpc::new(GrpcParts {
            reads: reads.clone(),
            cluster: Arc::new(KubeSystem::new(upstream.clone())),
            groups,
            informers: everything,
            readiness: readiness.clone(),
            drain: drain.clone(),
            drain_spread: config.http.drain_spread,
            ledger: memory.ledger.clone(),
            stall_guards: stall_guards.clone(),
            metrics: grpc_metrics.clone(),
        });
        let calls = Calls { grpc, access: access.clone(), audit: audit.clone(), ledger: memory.ledger.clone() };
        let service = Service::start(
            reads.clone(),
            ServiceParts {
                guard: Guard::new(config.http.hosts.iter().cloned()),
                access: access.clone(),
                audit,
                access_log,
                forward,
                drain: drain.clone(),
                drain_spread: config.http.drain_spread,
                stall_timeout: config.http.write_stall_timeout,
                stall_guards: stall_guards.clone(),
                ledger: memory.ledger.clone(),
                explain: config.http.explain,
                lend_sessions: config.http.lend_sessions,
                via: upstream.via().clone(),
                grpc: Some(Arc::new(calls)),
                gzip_bytes: config.http.gzip_bytes,
                metrics: http_metrics.clone(),
            },
            fatal,
        );
        server.reserving(memory.ledger.clone()).serve(Arc::new(service), drain, fatal)?;

        let (following, forced) = (discovery.clone(), drain.clone());
        let definitions = async move { following.watch_definitions(forced).await };
        lifecycle::spawn_supervised("definitions", definitions, fatal);
        lifecycle::spawn_supervised("informers", factory.clone().tend(), fatal);
        let audits = factory.clone().audit(config.informer.store_check);
        lifecycle::spawn_supervised("audit", audits, fatal);
        lifecycle::spawn(
            "readiness",
            become_ready(factory.clone(), discovery, upstream.recoveries(), latches, drain.clone()),
        );
        Ok(Self {
            listen,
            ca_file,
            admin: admin.address,
            factory,
            reads,
            upstream,
            packing: memory.packing.clone(),
            access,
            http: http_metrics,
            grpc: grpc_metrics,
            _admin: Arc::new(admin),
        })
    }
}

/// Ends once the configuration names another cluster. The caches, and what clients hold, are of the one before, so the
/// process has to start again.
async fn stays(mut moved: watch::Receiver<bool>) {
    if moved.wait_for(|moved| *moved).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Reports readiness once the apiserver has answered, and everything that is pinned is synced or known to be forbidden.
async fn become_ready(
    factory: Factory,
    discovery: Discovery,
    mut recoveries: watch::Receiver<u64>,
    mut latches: Latches,
    draining: DrainWatch,
) {
    let Latches { apiserver, pinned } = &mut latches;
    let ready = async {
        let mut backoff = Backoff::between(Duration::from_secs(1), Duration::from_secs(5));
        while let Err(error) = discovery.resources().await {
            tracing::warn!(%error, "discovery is not available yet, trying again");
            recoveries.mark_unchanged();
            tokio::select! {
                () = tokio::time::sleep(backoff.next(None)) => {}
                _ = recoveries.changed() => {}
            }
        }
        release(apiserver);
        for (name, latch) in pinned {
            pinned_synced(&factory, name).await;
            release(latch);
        }
    };
    tokio::select! {
        () = ready => {}
        // The latches are kept: a daemon that is told to stop before it was ready must not become ready.
        () = draining.draining() => draining.forced().await,
    }
}

/// What readiness waits for.
struct Latches {
    apiserver: Option<Latch>,
    /// By group and resource, as in `deployments.apps`.
    pinned: Vec<(String, Option<Latch>)>,
}

fn release(latch: &mut Option<Latch>) {
    if let Some(latch) = latch.take() {
        latch.release();
    }
}

/// The resources that are pinned by name.
fn pinned(config: &Config) -> impl Iterator<Item = String> {
    config.informer.rules.iter().filter(|rule| rule.pin && !rule.exclude).map(|rule| {
        let pattern = &rule.pattern;
        Gvr::new(&pattern.group, "", &pattern.resource).group_resource()
    })
}

/// Waits for every informer of a pinned resource. An unknown resource may be a definition that is created later, or a
/// mistake. It is waited for in both cases.
async fn pinned_synced(factory: &Factory, name: &str) {
    'again: loop {
        while factory.unknown_pins().await.iter().any(|unknown| unknown == name) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let started = factory.start_pinned().await;
        for informer in started.iter().filter(|informer| informer.key().gvr.group_resource() == name) {
            if !synced(factory, informer).await {
                continue 'again;
            }
        }
        return;
    }
}

/// Waits until the informer is synced or known to be forbidden; false if it has ended instead.
async fn synced(factory: &Factory, informer: &Arc<Informer>) -> bool {
    loop {
        let soon = tokio::time::Instant::now() + Duration::from_secs(5);
        if informer.synced(soon, false).await {
            return true;
        }
        if informer.has_given_up() {
            // The reason was logged, and its reads are forwarded. So this need not keep the pod from its clients.
            return true;
        }
        if informer.is_forbidden() {
            tracing::warn!(informer = %informer.key(), "pinned informer is forbidden");
            return true;
        }
        if !factory.runs(informer) {
            return false;
        }
        // The writer of this cache is gone, so it will not sync. Its informer is about to be removed.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
