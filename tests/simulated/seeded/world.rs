//! What a seed consists of: the apiservers, the network, the daemon that comes and goes, and what everybody has seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use informerd::apiserver::client::ConfigSource;
use informerd::config::Config;
use informerd_sim::{Entry, EventType, Server};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::contents::{Contents, Written};
use super::load::Load;
use super::rights::Rights;
use crate::support::Through;
use crate::support::client::Client;
use crate::support::history::{Log, Logged, Read, Seen, Selected, State};
use crate::support::informer::{Observer, Shown};
use crate::support::ports::Port;
use crate::support::relay::Relay;

pub(super) const NAMESPACES: [&str; 2] = ["a", "a-b"];
pub(super) const GROUPS: [&str; 2] = ["even", "odd"];
/// Names of objects in each namespace.
pub(super) const NAMES: u64 = 6;
/// What is enough for the caches as long as no object is large.
pub(super) const LITTLE: &str = "limits: {memory: 3Mi}\n";

/// What a client accepts that prefers protobuf.
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";

/// One of the resources that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    pub number: usize,
    pub prefix: &'static str,
    pub group: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub id: &'static str,
}

pub(super) const RESOURCES: [Resource; 2] = [
    Resource { number: 0, prefix: "/api/v1", group: "", plural: "configmaps", kind: "ConfigMap", id: "configmaps" },
    Resource {
        number: 1,
        prefix: "/apis/demo.informerd.io/v1",
        group: "demo.informerd.io",
        plural: "widgets",
        kind: "Widget",
        id: "widgets.demo.informerd.io",
    },
];

/// What is different from seed to seed, and stays so during one.
#[derive(Debug)]
pub(super) struct Swarm {
    /// The kinds of faults that happen, by their numbers.
    pub faults: Vec<usize>,
    /// The mean pause between them, in milliseconds.
    pub faults_between: u64,
    pub yaml: String,
    pub delegated: bool,
    pub lag: Duration,
    pub refuses_watch_lists: bool,
    pub foreign: Option<Value>,
    /// Of this resource, an object that cannot be decoded stays when the faults have ended.
    pub poisoned: Option<Resource>,
}

/// One seed.
pub(super) struct Run {
    pub seed: u64,
    pub swarm: Swarm,
    /// Before this revision there are no rights that could be taken away, so the store is not set back behind it.
    pub beginning: u64,
    pub server: Server,
    pub second: Server,
    /// To which nothing happens, for clients that have another way to the store.
    pub direct: Server,
    pub relay: Relay,
    ports: [Port; 2],
    snapshots: tempfile::TempDir,
    daemon: Mutex<Option<Arc<Through>>>,
    /// Daemons that were started.
    lives: AtomicU64,
    /// Numbers beginnings and ends.
    clock: AtomicU64,
    reads: Mutex<Vec<(u64, usize, Read)>>,
    contents: Contents,
    pub load: Load,
    pub wrong: Mutex<Vec<String>>,
    /// What happened that may cost a client its place in a stream.
    pub excuses: AtomicU64,
    /// What was done to the world, for the report of a failure.
    pub deeds: Mutex<Vec<String>>,
    pub is_over: AtomicBool,
    /// The faults have ended.
    pub is_calm: AtomicBool,
    /// The store was set back, and what is seen until the daemon has noticed says nothing.
    pub is_rewound: AtomicBool,
    pub rights: Arc<Rights>,
    /// Whether the reader's right was taken away for long, which takes its time.
    pub was_taken: AtomicBool,
    /// Until then, the daemon may hear late of changes of rights.
    disturbed_until: Mutex<Instant>,
}

/// When a request began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Began {
    life: u64,
    tick: u64,
    /// The last change of the resource by then.
    pub newest: u64,
}

impl Resource {
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.prefix, self.plural)
    }

    pub(super) fn inside(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.prefix, self.plural)
    }

    pub(super) fn object(&self, namespace: &str, name: &str, group: &str, n: u64) -> Value {
        let version = self.prefix.trim_start_matches("/apis/").trim_start_matches("/api/");
        json!({
            "apiVersion": version, "kind": self.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": {"group": group}, "annotations": {"n": n.to_string()}},
        })
    }
}

impl Swarm {
    fn of(random: &mut StdRng) -> Self {
        let faults: Vec<usize> = (0..super::chaos::KINDS).filter(|_| random.random_bool(0.3)).collect();
        let mode = ["auto", "auto", "probe", "upstream"][random.random_range(0..4)];
        let mut yaml = format!("drain: {{timeout: 2s}}\nexplainHeader: true\nconsistentReads: {mode}\n");
        for (probability, settings) in [
            (0.3, "whileAway: serve\n"),
            (0.5, "snapshots: {dir: SNAPSHOTS}\n"),
            (0.2, "memory: {form: packed}\n"),
            (0.1, "notSynced: {wait: 500ms, then: \"429\"}\n"),
            (0.3, "resources: [{resource: configmaps, pin: true}]\n"),
        ] {
            if random.random_bool(probability) {
                yaml.push_str(settings);
            }
        }
        // Mostly, what was allowed is kept for longer than any outage lasts.
        let keeps = ["", "", "authorization: {whileAway: keep=2s}\n", "authorization: {whileAway: refuse}\n"];
        yaml.push_str(keeps[random.random_range(0..keeps.len())]);
        if faults.contains(&super::chaos::RESTORE) {
            yaml.push_str("storeCheck: 5s\n");
        }
        if faults.contains(&super::chaos::MEMORY) && random.random_bool(0.7) {
            yaml.push_str(LITTLE);
        }
        let foreign = [
            json!(null),
            json!([{"version": "v1", "resources": null}]),
            json!([{"version": "v1", "resources": [{"resource": "things", "scope": "Cluster", "verbs": null,
                "responseKind": {"group": "", "version": "", "kind": "Thing"}, "subresources": null}]}]),
            json!([{"version": "v1", "resources": [{"resource": "things", "scope": "Cluster", "verbs": ["get"],
                "responseKind": null, "shortNames": null, "categories": null}], "freshness": "Stale"}]),
        ];
        let delegated = random.random_bool(0.25);
        // No state that has such an object can be compared with the store, and the user of the delegated listener reads the
        // first resource.
        let poisoned = !faults.contains(&super::chaos::RESTORE) && random.random_bool(0.2);
        let foreign = random.random_bool(0.3).then(|| {
            let versions = &foreign[random.random_range(0..foreign.len())];
            json!({"metadata": {"name": "foreign.example.com"}, "versions": versions})
        });
        Self {
            faults,
            faults_between: [100, 300, 1000][random.random_range(0..3)],
            yaml,
            delegated,
            lag: Duration::from_millis(random.random_range(20..2000)),
            refuses_watch_lists: random.random_bool(0.2),
            foreign,
            poisoned: poisoned.then(|| RESOURCES[usize::from(delegated || random.random_bool(0.5))]),
        }
    }

    pub(super) fn has(&self, fault: usize) -> bool {
        self.faults.contains(&fault)
    }
}

impl Run {
    pub(super) async fn start(seed: u64) -> Arc<Self> {
        let mut random = StdRng::seed_from_u64(seed);
        let swarm = Swarm::of(&mut random);
        let progress = Duration::from_secs(random.random_range(1..20));
        let server = Server::builder().progress_every(progress).protobuf().start().await.unwrap();
        server.store().keep_journal();
        for (n, namespace) in NAMESPACES.iter().enumerate() {
            server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).unwrap();
            for resource in RESOURCES {
                server.create(resource.object(namespace, &format!("object-{n}"), GROUPS[n], 0)).unwrap();
            }
        }
        super::rights::define(&server);
        let rights = Arc::<Rights>::default();
        super::rights::answer(&server, rights.clone());
        server.set_foreign_group(swarm.foreign.clone());
        let second = server.replica(swarm.lag).await.unwrap();
        let direct = server.replica(Duration::ZERO).await.unwrap();
        let relay = Relay::before(server.address()).await;
        let run = Arc::new(Self {
            seed,
            swarm,
            beginning: server.revision(),
            server,
            second,
            direct,
            relay,
            ports: [Port::free(), Port::free()],
            snapshots: tempfile::tempdir().unwrap(),
            daemon: Mutex::default(),
            lives: AtomicU64::new(0),
            clock: AtomicU64::new(1),
            reads: Mutex::default(),
            contents: Contents::default(),
            load: Load::default(),
            wrong: Mutex::default(),
            excuses: AtomicU64::new(0),
            deeds: Mutex::default(),
            is_over: AtomicBool::new(false),
            is_calm: AtomicBool::new(false),
            is_rewound: AtomicBool::new(false),
            rights,
            was_taken: AtomicBool::new(false),
            disturbed_until: Mutex::new(Instant::now()),
        });
        run.stay();
        run.start_daemon().await;
        run
    }

    /// The faults that are no faults, but how this apiserver is.
    pub(super) fn stay(&self) {
        for server in [&self.server, &self.second] {
            if self.swarm.refuses_watch_lists {
                server.faults().add(informerd_sim::Fault::always(informerd_sim::Effect::RefuseWatchList));
            }
        }
    }

    pub(super) async fn start_daemon(&self) {
        // A watch that begins with the state may be refused, and is a list then.
        self.load.allow(&RESOURCES, 2);
        let [plain, delegated] = self.ports.each_ref().map(|port| port.address);
        let mut listen = format!("\"http://{plain}\"");
        if self.swarm.delegated {
            listen.push_str(&format!(", \"delegated+https://{delegated}\""));
        }
        let yaml = self.swarm.yaml.replace("SNAPSHOTS", &self.snapshots.path().display().to_string());
        let config = kube::Config::new(format!("http://{}", self.relay.address).parse().unwrap());
        let source = ConfigSource::Fixed(Box::new(config));
        let change = |config: &mut Config| config.http.drain_spread = Duration::ZERO;
        let through = Through::changed(source, &format!("listen: [{listen}]\n{yaml}"), change).await;
        *self.daemon.lock() = Some(Arc::new(through));
        self.lives.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) async fn stop_daemon(&self, soft: Duration) {
        let daemon = self.daemon.lock().take();
        self.lives.fetch_add(1, Ordering::SeqCst);
        if let Some(daemon) = daemon {
            daemon.stop(soft).await;
        }
    }

    pub(super) fn daemon(&self) -> Option<Arc<Through>> {
        self.daemon.lock().clone()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.ports[0].address)
    }

    pub(super) fn delegated_url(&self) -> String {
        format!("https://localhost:{}", self.ports[1].address.port())
    }

    /// Of the daemon, over HTTP/1.1 or HTTP/2, in JSON or, where there is any, protobuf.
    pub(super) fn client(&self, random: &mut StdRng) -> Client {
        let client = if random.random_bool(0.5) { Client::new(&self.url()) } else { Client::http2(&self.url()) };
        if random.random_bool(0.3) { client.accepting(PROTOBUF) } else { client }
    }

    pub(super) fn random(&self, actor: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_mul(1000).wrapping_add(actor))
    }

    pub(super) fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn complain(&self, why: String) {
        if !self.is_rewound.load(Ordering::SeqCst) {
            self.wrong.lock().push(why);
        }
    }

    /// Something was done that may cost clients their places in streams.
    pub(super) fn excuse(&self) {
        self.excuses.fetch_add(1, Ordering::SeqCst);
    }

    /// Connections are broken. For this long, the daemon may hear late of changes of rights.
    pub(super) fn disturb(&self, during: Duration) {
        let mut until = self.disturbed_until.lock();
        *until = (*until).max(Instant::now() + during);
    }

    pub(super) fn disturbed_until(&self) -> Instant {
        *self.disturbed_until.lock()
    }

    /// A client was shown an object.
    pub(super) fn shows(&self, resource: Resource, what: &str, shown: Shown<'_>) {
        if !self.is_rewound.load(Ordering::SeqCst) {
            self.contents.add(resource, what, shown);
        }
    }

    pub(super) fn begin(&self, resource: Resource) -> Began {
        let newest = self.server.store().last_change(resource.id);
        Began { life: self.lives.load(Ordering::SeqCst), tick: self.tick(), newest }
    }

    /// A request has ended, and has shown this. `from` is what it asked for; `None` if it may be as old as it likes.
    pub(super) fn saw(&self, resource: Resource, began: Began, from: Option<u64>, what: &str, seen: Seen) {
        let (life, until) = (self.lives.load(Ordering::SeqCst), self.server.revision());
        // Another daemon has not shown what the one before has.
        if life != began.life || self.is_rewound.load(Ordering::SeqCst) {
            return;
        }
        let (tick, ended) = if from.is_some() { (began.tick, self.tick()) } else { (0, u64::MAX) };
        let what = format!("{what} of {} in life {life}", resource.plural);
        let (acknowledged, from) = (BTreeMap::new(), from.unwrap_or(0));
        let read = Read { what, began: tick, ended, acknowledged, from, until, seen };
        self.reads.lock().push((life, resource.number, read));
    }

    /// A stream has shown this, which may be old, but nobody is shown less afterwards.
    pub(super) fn streamed(&self, resource: Resource, from: u64, what: &str, seen: Seen) {
        let began = Began { tick: 0, ..self.begin(resource) };
        self.saw(resource, began, Some(from), what, seen);
    }

    /// Compares the reads since the last time with the log, and returns how many there were.
    pub(super) fn judge(&self) -> usize {
        let (mut logs, mut written) = ([Log::default(), Log::default()], [Written::default(), Written::default()]);
        for entry in self.server.store().journal() {
            let (resource, change) = match entry {
                Entry::Changed { resource, change } => (resource, change),
                Entry::Rewound(rv) => {
                    logs.iter_mut().for_each(|log| log.rewind(rv));
                    written.iter_mut().for_each(|written| written.rewind(rv));
                    continue;
                }
            };
            let Some(resource) = RESOURCES.iter().find(|of| of.id == &*resource) else { continue };
            let key = change.object.key.as_str().to_owned();
            if !key.contains("poison") {
                let value = change.object.value();
                let group = value["metadata"]["labels"]["group"].as_str().unwrap_or_default().to_owned();
                let deleted = change.kind == EventType::Deleted;
                written[resource.number].push(deleted, &value);
                logs[resource.number].push(Logged { rv: change.rv, key, group, deleted });
            }
        }
        let mut by_life: BTreeMap<(u64, usize), Vec<Read>> = BTreeMap::new();
        let reads = std::mem::take(&mut *self.reads.lock());
        let count = reads.len();
        for (life, resource, read) in reads {
            by_life.entry((life, resource)).or_default().push(read);
        }
        for ((_, resource), reads) in by_life {
            self.wrong.lock().extend(logs[resource].check(&reads));
        }
        self.wrong.lock().extend(self.contents.judge(&written));
        count
    }

    /// What there is of a resource.
    pub(super) fn truth(&self, resource: Resource, of: &Selected) -> State {
        let objects = self.server.store().objects(resource.id);
        let there = objects.iter().filter(|(key, _)| !key.as_str().contains("poison"));
        let selected = there.filter(|(key, stored)| {
            of.selects(key.as_str(), stored.value()["metadata"]["labels"]["group"].as_str().unwrap_or_default())
        });
        selected.map(|(key, stored)| (key.as_str().to_owned(), stored.rv)).collect()
    }
}

/// Writes down what an informer sees.
pub(super) struct Told {
    pub run: Arc<Run>,
    pub resource: Resource,
    pub of: Selected,
    pub what: &'static str,
    /// Whether it gets its states from the apiserver itself.
    pub lists_directly: bool,
    pub began: Mutex<Option<Began>>,
}

impl Observer for Told {
    fn begins(&self) -> u64 {
        *self.began.lock() = Some(self.run.begin(self.resource));
        0
    }

    fn state(&self, began: Option<u64>, rv: u64, state: &State) {
        let seen = Seen::Collection { rv, state: state.clone(), of: self.of.clone(), limit: None };
        match began.and(*self.began.lock()) {
            Some(_) if self.lists_directly => {}
            Some(began) => self.run.saw(self.resource, began, Some(began.newest), self.what, seen),
            None => self.run.streamed(self.resource, 0, self.what, seen),
        }
    }

    fn object(&self, shown: Shown<'_>) {
        self.run.shows(self.resource, self.what, shown);
    }

    fn event(&self, key: &str, rv: u64, is: Option<u64>) {
        // An object that leaves a selection is still there.
        if is.is_some() || self.of.group.is_none() {
            self.run.streamed(self.resource, rv, self.what, Seen::Object { key: key.to_owned(), rv: is });
        }
    }
}
