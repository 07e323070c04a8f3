//! What is asked for when something changes, and who waits for it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;
use crate::testing::{FakeServer, answer, streamed, until};
use informerd_lifecycle as lifecycle;
use informerd_lifecycle::drain::DrainWatch;
use informerd_meta::Origin;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// An apiserver with Pods, and with Widgets and Gadgets of one group. A test says what changes.
struct World {
    server: FakeServer,
    discovery: Discovery,
    definitions: mpsc::Sender<Value>,
    services: mpsc::Sender<Value>,
    /// Whether questions of discovery get no answer.
    held: Arc<AtomicBool>,
    /// Whether the document of all groups lacks that of the Widgets.
    hides: Arc<AtomicBool>,
    /// Whether the document of that group cannot be read.
    breaks: Arc<AtomicBool>,
    /// The scopes that definitions and discovery have.
    scopes: Arc<Mutex<[&'static str; 2]>>,
    changes: watch::Receiver<u64>,
}

fn definition(name: &str, generation: i64, revision: u64, conditions: &Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "generation": generation, "resourceVersion": revision.to_string(),
            "annotations": {"at": revision.to_string()}},
        "spec": {"versions": [{"name": "v1", "served": true, "selectableFields": [{"jsonPath": ".spec.color"}],
            "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        "status": {"storedVersions": ["v1"], "conditions": conditions, "acceptedNames": {"kind": "Widget"}},
    })
}

fn service(name: &str, revision: u64, spec: &Value, available: &str, message: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": revision.to_string()}, "spec": spec,
        "status": {"conditions": [{"type": "Available", "status": available, "message": message}]},
    })
}

fn established() -> Value {
    json!([{"type": "NamesAccepted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Established", "status": "True", "message": "the initial names have been accepted"}])
}

fn local() -> Value {
    json!({"group": "example.com", "version": "v1", "versionPriority": 100})
}

fn metrics() -> Value {
    json!({"group": "metrics.k8s.io", "version": "v1", "service": {"name": "metrics", "namespace": "kube-system"}})
}

fn listed(items: &[Value]) -> String {
    json!({"metadata": {"resourceVersion": "10"}, "items": items}).to_string()
}

impl World {
    async fn start() -> Self {
        Self::start_with(Duration::ZERO).await
    }

    async fn start_with(min_refresh: Duration) -> Self {
        let world = Self::not_followed(min_refresh).await;
        world.discovery.follow_definitions_of("example.com");
        lifecycle::spawn("definitions", world.discovery.clone().watch_definitions(DrainWatch::never()));
        let mut servers = world.discovery.servers().changes();
        within(servers.wait_for(|changes| *changes > 0)).await.unwrap();
        until(|| world.discovery.inner.definitions.lock().is_known("widgets.example.com")).await;
        world
    }

    async fn not_followed(min_refresh: Duration) -> Self {
        let [held, hides, breaks] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let broken = Arc::clone(&breaks);
        let ((definitions, first), (services, second)) = (mpsc::channel::<Value>(8), mpsc::channel::<Value>(8));
        let events = Arc::new(Mutex::new([(DEFINITIONS, Some(first)), (SERVICES, Some(second))]));
        let scopes = Arc::new(Mutex::new(["Namespaced"; 2]));
        let (holds, lacks, scoped) = (Arc::clone(&held), Arc::clone(&hides), Arc::clone(&scopes));
        let server = FakeServer::plain(move |request, _| {
            let (holds, events, lacks) = (Arc::clone(&holds), Arc::clone(&events), lacks.load(Ordering::Acquire));
            let [of_definition, of_discovery] = *scoped.lock();
            let is_broken = broken.load(Ordering::Acquire);
            async move {
                let path = request.uri().path().to_owned();
                if request.uri().query().unwrap_or_default().contains("watch=true") {
                    let mut lock = events.lock();
                    let (_, lines) = lock.iter_mut().find(|(of, _)| **of == *path).unwrap();
                    let (mut lines, (sender, response)) = (lines.take().unwrap(), streamed());
                    lifecycle::spawn("script", async move {
                        while let Some(line) = lines.recv().await {
                            sender.send(format!("{line}\n").into()).await.ok();
                        }
                    });
                    return response;
                }
                if holds.load(Ordering::Acquire) {
                    std::future::pending::<()>().await;
                }
                let resource = |name: &str, kind: &str| json!({"resource": name, "responseKind": {"kind": kind}, "scope": "Namespaced", "verbs": ["get", "list", "watch"]});
                let group = |name: &str, resources: Value| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "resources": resources}]});
                let document = |groups: Value| json!({"kind": "APIGroupDiscoveryList", "items": groups}).to_string();
                let own = |name: &str| json!({"name": name, "kind": "Widget", "namespaced": of_discovery == "Namespaced", "verbs": ["get", "list", "watch"]});
                answer(200, match &*path {
                    "/api" => document(json!([group("", json!([resource("pods", "Pod")]))])),
                    "/apis" if lacks => {
                        document(json!([group("metrics.k8s.io", json!([resource("nodes", "NodeMetrics")]))]))
                    }
                    "/apis" => document(json!([
                        group("example.com", json!([resource("widgets", "Widget"), resource("gadgets", "Widget")])),
                        group("metrics.k8s.io", json!([resource("nodes", "NodeMetrics")])),
                    ])),
                    "/apis/example.com" if is_broken => return answer(503, ""),
                    "/apis/example.com" => json!({"kind": "APIGroup", "versions": [{"groupVersion": "example.com/v1"}]}).to_string(),
                    "/apis/example.com/v1" => json!({"kind": "APIResourceList", "resources": [own("widgets"), own("gadgets")]}).to_string(),
                    "/apis/metrics.k8s.io" => json!({"kind": "APIGroup", "versions": [{"groupVersion": "metrics.k8s.io/v1"}]}).to_string(),
                    "/apis/metrics.k8s.io/v1" => return answer(503, ""),
                    DEFINITIONS => {
                        let names = ["widgets.example.com", "gadgets.example.com"];
                        listed(&names.map(|name| json!({"metadata": definition(name, 1, 5, &json!([]))["metadata"]})))
                    }
                    SERVICES => listed(&[
                        service("v1.example.com", 6, &local(), "True", ""),
                        service("v1.metrics.k8s.io", 7, &metrics(), "True", ""),
                    ]),
                    _ => match path.strip_prefix(&format!("{DEFINITIONS}/")) {
                        Some(name) => {
                            let mut definition = definition(name, 1, 5, &established());
                            definition["spec"]["scope"] = of_definition.into();
                            definition.to_string()
                        }
                        None => return answer(404, ""),
                    },
                })
            }
        })
        .await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let config = DiscoveryConfig { min_refresh, ..DiscoveryConfig::default() };
        let discovery = Discovery::with_config(upstream, config);
        let changes = discovery.changes();
        Self { server, discovery, definitions, services, held, hides, breaks, scopes, changes }
    }

    async fn resolve(&self, group: &str, resource: &str) -> Arc<Resource> {
        within(self.discovery.resolve(group, "v1", resource)).await.unwrap().unwrap()
    }

    /// Resolves what is in use, and returns what was asked for.
    async fn asked(&self) -> Vec<String> {
        let before = self.server.uris().len();
        self.resolve("", "pods").await;
        self.resolve("example.com", "widgets").await;
        assert_eq!(
            within(self.discovery.preferred("example.com", "widgets")).await.unwrap().unwrap().version,
            "v1".into()
        );
        self.server.uris().split_off(before)
    }

    async fn changed(&self, object: Value) {
        self.definitions.send(json!({"type": "MODIFIED", "object": object})).await.unwrap();
    }

    /// A change that matters, after all that was sent before.
    async fn other(&mut self, n: u64) {
        self.changed(definition(&format!("n{n}.other.org"), 1, 1000 + n, &established())).await;
        within(self.changes.changed()).await.unwrap();
    }

    async fn service(&self, object: Value) {
        self.services.send(json!({"type": "MODIFIED", "object": object})).await.unwrap();
    }
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), what).await.expect("in a minute")
}

const OF_WIDGETS: [&str; 3] = [
    "/apis/example.com",
    "/apis/example.com/v1",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
];

#[tokio::test]
async fn nobody_waits_for_what_has_not_changed() {
    let mut world = World::start().await;
    world.asked().await;
    world.changes.mark_unchanged();
    world.held.store(true, Ordering::Release);
    // Another definition of the same group, and new ones.
    world.changed(definition("gadgets.example.com", 2, 11, &established())).await;
    within(world.changes.changed()).await.unwrap();
    assert_eq!(world.asked().await, [""; 0]);
    for n in 0..60 {
        world.other(n).await;
        assert_eq!(world.asked().await, [""; 0]);
    }
    // Annotations of the own definition, and times in its status.
    for revision in 20..40 {
        let mut same = definition("widgets.example.com", 1, revision, &established());
        same["metadata"]["labels"] = json!({"a": revision.to_string()});
        same["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}]);
        same["status"]["conditions"][0]["lastTransitionTime"] = json!(revision.to_string());
        world.changed(same).await;
    }
    world.other(100).await;
    assert_eq!(world.asked().await, [""; 0]);
    // An aggregated server that comes and goes, and an APIService of the own group version that says why it is as it is.
    for revision in 200..210 {
        let available = ["True", "False"][usize::from(revision % 2 == 1)];
        world.service(service("v1.metrics.k8s.io", revision, &metrics(), available, "")).await;
        world.service(service("v1.example.com", revision, &local(), "True", &revision.to_string())).await;
    }
    until(|| world.discovery.inner.changed.lock().includes_group("metrics.k8s.io")).await;
    assert_eq!(world.asked().await, [""; 0]);
}

/// The apiserver's aggregator polls an APIService that was that of another server for minutes after it is local again.
#[tokio::test]
async fn a_group_that_the_document_of_all_groups_lacks_is_read_by_itself() {
    for is_known in [true, false] {
        let world = World::start().await;
        if is_known {
            world.asked().await;
        }
        world.hides.store(true, Ordering::Release);
        for _ in 0..2 {
            assert_eq!(within(world.discovery.resolve("unknown.org", "v1", "things")).await.unwrap(), None);
            let found = within(world.discovery.preferred("example.com", "widgets")).await.unwrap();
            assert_eq!(found.map(|gvr| gvr.version), Some("v1".into()), "{is_known}");
            assert_eq!(within(world.discovery.resolve("unknown.org", "v1", "things")).await.unwrap(), None);
            assert_eq!(&*world.resolve("example.com", "widgets").await.kind, "Widget", "{is_known}");
        }
    }
}

/// Who reads it meanwhile finds it, and what has changed of it is still to be read.
#[tokio::test]
async fn a_hidden_group_outlives_a_full_read() {
    let world = World::start().await;
    world.hides.store(true, Ordering::Release);
    let widgets = world.resolve("example.com", "widgets").await;
    world.discovery.suspect(&Gvr::new("example.com", "v1", "gadgets"));
    within(world.discovery.refresh()).await.unwrap();
    assert!(!world.discovery.is_outdated(&widgets) && world.discovery.may_exist("example.com", "widgets"));
    assert!(world.discovery.inner.changed.lock().includes("example.com", "gadgets"));
    // Everything has changed as long as definitions may not be watched.
    world.discovery.mark(&Subject::All);
    within(world.discovery.refresh()).await.unwrap();
    assert!(world.discovery.is_outdated(&widgets));
    assert_eq!(world.resolve("example.com", "widgets").await, widgets);
}

/// The other server of its group is away. It does not have what only a definition names, in a version that nobody names.
#[tokio::test]
async fn a_version_that_does_not_exist_is_not_unread_for_ever() {
    let world = World::start().await;
    world.resolve("metrics.k8s.io", "nodes").await;
    for name in ["nodes", "others"] {
        let known = definitions::Known::new("", 0, "4", None);
        world.discovery.inner.definitions.lock().forget(&format!("{name}.metrics.k8s.io"), known);
        world.discovery.suspect(&Gvr::new("metrics.k8s.io", "v1", name));
    }
    assert_eq!(within(world.discovery.resolve("metrics.k8s.io", "v9", "nodes")).await.unwrap(), None);
    assert!(within(world.discovery.resolve("metrics.k8s.io", "v1", "others")).await.is_err());
    // As long as it is being read, nobody knows.
    world.discovery.suspect(&Gvr::new("metrics.k8s.io", "v1", "nodes"));
    assert!(world.discovery.may_lack("metrics.k8s.io", Some("v9")));
    world.held.store(true, Ordering::Release);
    let reading = world.discovery.clone();
    lifecycle::spawn("reading", async move { reading.refresh().await });
    until(|| !world.discovery.inner.reading.lock().is_empty()).await;
    assert!(!world.discovery.inner.changed.lock().includes_group("metrics.k8s.io"));
    assert!(world.discovery.may_lack("metrics.k8s.io", Some("v9")));
}

/// That a group could not be read says nothing about its resources.
#[tokio::test]
async fn a_hidden_group_that_cannot_be_read_is_not_missing() {
    let world = World::start_with(Duration::from_secs(600)).await;
    world.hides.store(true, Ordering::Release);
    world.breaks.store(true, Ordering::Release);
    for _ in 0..2 {
        assert!(within(world.discovery.resolve("example.com", "v1", "widgets")).await.is_err());
        assert!(within(world.discovery.preferred("example.com", "widgets")).await.is_err());
    }
}

#[tokio::test]
async fn only_what_has_changed_is_read() {
    let mut world = World::start().await;
    world.asked().await;
    assert_eq!(world.asked().await, [""; 0]);
    world.changes.mark_unchanged();
    let deletion = json!([{"type": "Terminating", "status": "True"}]);
    for changed in [
        definition("widgets.example.com", 2, 11, &established()),
        definition("widgets.example.com", 2, 12, &deletion),
        json!({"metadata": {"name": "widgets.example.com", "uid": "again", "generation": 2, "resourceVersion": "13"},
            "status": {"conditions": deletion, "storedVersions": ["v1"], "acceptedNames": {"kind": "Widget"}}}),
        json!({"metadata": {"name": "widgets.example.com", "uid": "again", "generation": 2, "resourceVersion": "14"},
            "status": {"conditions": deletion, "storedVersions": ["v1", "v2"], "acceptedNames": {"kind": "Widget"}}}),
    ] {
        let what = changed.to_string();
        world.changed(changed).await;
        within(world.changes.changed()).await.unwrap();
        // Readers share the answers.
        let readers = (0..20).map(|_| world.resolve("example.com", "widgets"));
        let before = world.server.uris().len();
        futures_util::future::join_all(readers).await;
        assert_eq!(world.server.uris().split_off(before), OF_WIDGETS, "{what}");
        assert_eq!(world.asked().await, [""; 0], "{what}");
    }
    // A group version that is available again.
    for (revision, available, read) in [(300, "False", false), (301, "True", true), (302, "True", false)] {
        world.service(service("v1.example.com", revision, &local(), available, "")).await;
        world.service(service("v1.other.org", revision, &json!({"n": revision}), "True", "")).await;
        until(|| world.discovery.inner.services.lock().is_at("v1.other.org", revision)).await;
        assert_eq!(world.asked().await, if read { OF_WIDGETS.to_vec() } else { Vec::new() }, "{revision}");
    }
}

/// It tells nobody that it does not know the resources. What was known of them stays.
#[tokio::test]
async fn a_group_whose_server_is_away_stays_as_it_was() {
    let world = World::start().await;
    world.resolve("metrics.k8s.io", "nodes").await;
    world.discovery.suspect(&Gvr::new("metrics.k8s.io", "v1", "nodes"));
    let nodes = world.resolve("metrics.k8s.io", "nodes").await;
    assert_eq!((&*nodes.kind, &nodes.origin), ("NodeMetrics", &Origin::Unknown));
    assert!(world.server.uris().contains(&"/apis/metrics.k8s.io/v1".to_owned()));
    // And it is not asked for every reader.
    let asked = world.server.uris().len();
    for _ in 0..10 {
        world.resolve("metrics.k8s.io", "nodes").await;
    }
    assert_eq!(world.server.uris().len(), asked);
}

/// A process whose clients read nothing that depends on definitions costs no watch of them.
#[tokio::test]
async fn definitions_are_followed_from_their_first_use() {
    let world = World::not_followed(Duration::ZERO).await;
    lifecycle::spawn("definitions", world.discovery.clone().watch_definitions(DrainWatch::never()));
    let followed = || {
        let uris = world.server.uris();
        [DEFINITIONS, SERVICES].map(|path| uris.iter().any(|uri| uri.starts_with(&format!("{path}?"))))
    };
    world.resolve("", "pods").await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(followed(), [false, false]);
    world.discovery.follow_services();
    until(|| followed() == [false, true]).await;
    world.resolve("example.com", "widgets").await;
    until(|| followed() == [true, true]).await;
}

/// Discovery is read at the start, and definitions are followed from their first use, perhaps days later.
#[tokio::test]
async fn a_version_that_came_between_is_noticed() {
    let world = World::not_followed(Duration::ZERO).await;
    world.hides.store(true, Ordering::Release);
    world.resolve("", "pods").await;
    world.hides.store(false, Ordering::Release);
    world.discovery.follow_services();
    lifecycle::spawn("definitions", world.discovery.clone().watch_definitions(DrainWatch::never()));
    until(|| world.discovery.inner.changed.lock().includes("example.com", "widgets")).await;
    assert!(!world.discovery.inner.changed.lock().includes("metrics.k8s.io", "nodes"), "it was there");
}

#[tokio::test]
async fn what_changed_before_the_first_list_is_noticed() {
    let mut world = World::not_followed(Duration::ZERO).await;
    world.asked().await;
    let known = definitions::Known::new("widgets.example.com", 0, "4", None);
    world.discovery.inner.definitions.lock().forget("widgets.example.com", known);
    world.discovery.follow_definitions_of("example.com");
    lifecycle::spawn("definitions", world.discovery.clone().watch_definitions(DrainWatch::never()));
    within(world.changes.changed()).await.unwrap();
    until(|| world.discovery.inner.changed.lock().includes("example.com", "widgets")).await;
}

/// Whatever is wrong with what one server says: informerd becomes ready, and all other resources are found.
#[tokio::test]
async fn discovery_is_available_whatever_one_server_says() {
    let said = Arc::new(Mutex::new(String::new()));
    let says = Arc::clone(&said);
    let server = FakeServer::plain(move |request, _| {
        let text = match request.uri().path() {
            "/apis" => says.lock().clone(),
            _ => r#"{"kind":"APIGroupDiscoveryList","items":null}"#.to_owned(),
        };
        async move { answer(200, text) }
    })
    .await;
    let whole = parse::tests::aggregated();
    let damaged = parse::tests::damaged(&whole, "/items/1");
    assert!(damaged.len() > 300, "{}", damaged.len());
    let mut expected = None;
    for (what, odd) in std::iter::once(("nothing".to_owned(), whole)).chain(damaged) {
        *said.lock() = odd.to_string();
        let discovery = Discovery::new(Upstream::from_config(server.config()).await.unwrap());
        let mut all = within(discovery.resources()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        all.retain(|found| matches!(&*found.gvr.group, "apps" | "example.com"));
        assert_eq!(all.len(), 3, "{what}");
        assert_eq!(&all, expected.get_or_insert_with(|| all.clone()), "{what}");
        let found = within(discovery.resolve("apps", "v1", "deployments")).await.unwrap().unwrap();
        assert_eq!((&*found.kind, &found.origin), ("Deployment", &Origin::BuiltIn), "{what}");
    }
}

/// A definition was replaced, and the apiserver that answers discovery does not know yet.
#[tokio::test]
async fn a_definition_decides_what_its_resource_is() {
    let mut world = World::start().await;
    assert!(world.resolve("example.com", "widgets").await.namespaced);
    world.changes.mark_unchanged();
    world.scopes.lock()[0] = "Cluster";
    world.changed(definition("widgets.example.com", 2, 11, &established())).await;
    within(world.changes.changed()).await.unwrap();
    assert!(!world.resolve("example.com", "widgets").await.namespaced);
    assert_eq!(world.asked().await, [""; 0], "nothing is asked again and again");
    world.scopes.lock()[1] = "Cluster";
    world.changed(definition("widgets.example.com", 3, 12, &established())).await;
    within(world.changes.changed()).await.unwrap();
    world.asked().await;
    assert!(!world.resolve("example.com", "widgets").await.namespaced);
    assert_eq!(world.asked().await, [""; 0]);
}

#[tokio::test]
async fn a_group_is_not_read_again_and_again_for_what_it_never_has() {
    let mut world = World::start_with(Duration::from_secs(600)).await;
    world.asked().await;
    world.changes.mark_unchanged();
    // Names of two definitions conflict.
    world.changed(definition("others.example.com", 1, 11, &json!([]))).await;
    within(world.changes.changed()).await.unwrap();
    let asked = async || {
        let before = world.server.uris().len();
        let found = within(world.discovery.resolve("example.com", "v1", "others")).await.unwrap();
        assert!(found.is_none());
        world.server.uris().split_off(before).into_iter().filter(|uri| uri.starts_with("/apis/example.com")).count()
    };
    assert!(asked().await > 0);
    for _ in 0..5 {
        assert_eq!(asked().await, 0);
    }
}
