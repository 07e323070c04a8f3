//! Daemons that start while the apiserver does not answer, with the snapshots of an earlier one: what they serve with
//! `whileAway: serve`, what they do not, and that the first answer ends it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::life::Life;
use crate::support::{eventually, file, unauthenticated, until};
use http::Method;
use informerd_sim::{Effect, Fault, FaultId, Server};
use serde_json::{Value, json};
use tempfile::TempDir;

const CONFIG_MAPS: &str = "/api/v1/configmaps";
const WIDGETS: &str = "/apis/demo.informerd.io/v1/widgets";
const JSON: &str = "application/json";
/// There is no protobuf here, so it is JSON that these clients get.
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// Pinned, so that the first daemon keeps them all.
const RESOURCES: &str = "
- {resource: configmaps, pin: true}
- {resource: widgets.demo.informerd.io, pin: true}
- {resource: services, pin: true, whileAway: refuse}
- {resource: endpointslices.discovery.k8s.io, pin: true, snapshot: false}
";

/// What is asked for, and in which form.
const READS: &[(&str, &str)] = &[
    (CONFIG_MAPS, JSON),
    (CONFIG_MAPS, TYPED),
    (CONFIG_MAPS, METADATA),
    ("/api/v1/namespaces/a/configmaps", JSON),
    ("/api/v1/namespaces/a/configmaps?labelSelector=app%3Dx", JSON),
    ("/api/v1/namespaces/a/configmaps/one", JSON),
    ("/api/v1/namespaces/a/configmaps/one", TYPED),
    (WIDGETS, JSON),
];

fn object(kind: &str, api_version: &str, name: &str, app: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "a", "labels": {"app": app}});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"app": app}})
}

/// An apiserver, and the directory of snapshots.
struct Scene {
    server: Server,
    root: TempDir,
}

impl Scene {
    async fn new() -> Self {
        let server = Server::builder().start().await.unwrap();
        server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})).unwrap();
        for (name, app) in [("one", "x"), ("two", "y"), ("three", "x")] {
            server.create(object("ConfigMap", "v1", name, app)).unwrap();
        }
        server.create(object("Widget", "demo.informerd.io/v1", "w", "x")).unwrap();
        server.create(object("Service", "v1", "s", "x")).unwrap();
        server.create(object("EndpointSlice", "discovery.k8s.io/v1", "e", "x")).unwrap();
        Self { server, root: tempfile::tempdir().unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("snapshots")
    }

    fn yaml(&self, settings: &str) -> String {
        let dir = self.dir();
        format!("snapshots: {{dir: {}{settings}}}\nwhileAway: serve\nresources: {RESOURCES}", dir.display())
    }

    async fn start(&self, yaml: &str) -> Life {
        Life::begin(unauthenticated(&self.server.url()), yaml).await
    }

    /// The files whose names end like this.
    fn files(&self, end: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir()).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_str().unwrap().ends_with(end)).collect()
    }

    /// A daemon whose caches and cluster are on the disk when it is killed. Returns what it has served.
    async fn first(&self, yaml: &str) -> Vec<Vec<u8>> {
        let life = self.start(yaml).await;
        life.through.ready().await;
        let any = |path: &str| format!("{path}{}resourceVersion=0", if path.contains('?') { '&' } else { '?' });
        let read = async || {
            let mut bodies = Vec::new();
            for (path, accept) in READS {
                let answer = life.get(&any(path), accept).await;
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                bodies.push(answer.body.to_vec());
            }
            bodies
        };
        read().await;
        // Config maps, widgets and services.
        eventually("all is kept", || (self.files(".snapshot").len(), self.files(".cluster").len()) == (3, 1)).await;
        let before = self.files(".snapshot").into_iter().map(|path| (len(&path), path)).collect::<Vec<_>>();
        self.server.create(object("ConfigMap", "v1", "late", "x")).unwrap();
        self.server.create(object("Widget", "demo.informerd.io/v1", "late", "x")).unwrap();
        self.server.create(object("Service", "v1", "late", "x")).unwrap();
        eventually("the events are kept", || before.iter().all(|(before, path)| len(path) > *before)).await;
        let bodies = read().await;
        life.kill().await;
        bodies
    }

    fn silent(&self) -> FaultId {
        let id = self.server.faults().add(Fault::always(Effect::Reset));
        self.server.faults().reset_connections();
        id
    }
}

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_state_is_served_until_anything_answers() {
    let scene = Scene::new().await;
    let yaml = scene.yaml("");
    let bodies = scene.first(&yaml).await;
    let silence = scene.silent();
    scene.server.create(object("ConfigMap", "v1", "unseen", "x")).unwrap();
    let life = scene.start(&yaml).await;
    for ((path, accept), expected) in READS.iter().zip(&bodies) {
        let answer = life.get(path, accept).await;
        answer.assert_old(path);
        assert!(answer.body == *expected, "{path} {accept}: {}", answer.text());
    }
    assert_eq!((life.count("informerd_snapshots_loaded_total", &[]).await, scene.files(".snapshot").len()), (2, 3));
    assert!(life.through.daemon.factory.informers().is_empty(), "no informer starts from what is not confirmed");
    assert!(!life.through.context.readiness.is_ready());
    // A table is not kept, but who asks for one takes plain JSON as well.
    let plain = life.get(CONFIG_MAPS, TABLE).await;
    plain.assert_old("a table");
    assert_eq!(plain.json()["kind"], "ConfigMapList");
    // Pages of one state.
    let (mut names, mut next) = (Vec::new(), String::new());
    loop {
        let page = life.get(&format!("{CONFIG_MAPS}?limit=2&continue={next}"), JSON).await;
        page.assert_old("a page");
        let page = page.json();
        names.extend(page["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()));
        match page["metadata"]["continue"].as_str() {
            Some(token) => token.clone_into(&mut next),
            None => break,
        }
    }
    assert_eq!(names, ["late", "one", "three", "two"]);
    for path in [
        "/api/v1/configmaps?watch=1",
        "/api/v1/configmaps?watch=1&resourceVersion=0",
        "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        "/api/v1/namespaces/a/configmaps/none",
        "/api/v1/configmaps?resourceVersion=1000000",
        "/api/v1/configmaps?resourceVersion=1&resourceVersionMatch=Exact",
        "/api/v1/services",
        "/apis/discovery.k8s.io/v1/endpointslices",
        "/api/v1/secrets",
        "/api/v1/nodes",
        "/version",
    ] {
        life.get(path, JSON).await.assert_unanswered(path);
    }
    let post = life.client.request(Method::POST, CONFIG_MAPS, &[("content-type", JSON)], "{}").await;
    post.assert_unanswered("a write");
    assert!(life.through.daemon.factory.informers().is_empty());

    // Any answer will do, and what it says is passed on.
    let faults = scene.server.faults();
    let refusal = faults.add(Fault::status(403));
    faults.remove(silence);
    until("the refusal is passed on", async || life.get(CONFIG_MAPS, JSON).await.status == 403).await;
    let silence = faults.add(Fault::always(Effect::Reset));
    faults.remove(refusal);
    for (path, accept) in READS {
        until("the apiserver is silent again", async || life.get(path, accept).await.status != 403).await;
        life.get(path, accept).await.assert_unanswered(path);
    }
    faults.remove(silence);
    life.through.ready().await;
    let list = life.get(CONFIG_MAPS, JSON).await;
    assert_eq!((list.status.as_u16(), list.warnings().len()), (200, 0));
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 5);
    life.kill().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_from_files_that_are_not_sound_or_not_of_this_cluster() {
    let scene = Scene::new().await;
    let yaml = scene.yaml("");
    scene.first(&yaml).await;
    let other = Scene::new().await;
    other.first(&other.yaml("")).await;
    scene.silent();
    other.silent();
    let kept: Vec<_> = fs::read_dir(scene.dir()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let kept: Vec<_> = kept.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let all = |end: &str, change: &dyn Fn(&mut Vec<u8>)| {
        for path in scene.files(end) {
            let mut file = fs::read(&path).unwrap();
            change(&mut file);
            fs::write(&path, file).unwrap();
        }
    };
    let flip = |file: &mut Vec<u8>| {
        let middle = file.len() / 2;
        file[middle] ^= 1;
    };
    let theirs = fs::read(&other.files(".cluster")[0]).unwrap();
    let remove = |end: &str| scene.files(end).into_iter().for_each(|path| fs::remove_file(path).unwrap());
    let key = file(scene.root.path(), "key", "0123456789abcdef".repeat(4));
    let encrypted = scene.yaml(&format!(", key: {}", key.display()));
    let refused = yaml.replace("whileAway: serve\n", "whileAway: refuse\n");
    let ruled =
        |rule: &str| yaml.replace("{resource: configmaps, pin: true}", &format!("{{resource: configmaps, {rule}}}"));
    let (excluded, left_out) = (ruled("exclude: true"), ruled("snapshot: false"));
    let selected = ruled("labelSelector: app=x");
    let nothing = || ();
    let cases: [(&str, &str, &dyn Fn(), u64); 12] = [
        ("the setting", &refused, &nothing, 0),
        ("a rule that excludes it now", &excluded, &nothing, 0),
        ("a rule that keeps it out of snapshots now", &left_out, &nothing, 0),
        ("a rule of another scope", &selected, &nothing, 0),
        ("a key", &encrypted, &nothing, 1),
        ("no cluster", &yaml, &|| remove(".cluster"), 0),
        ("a damaged cluster", &yaml, &|| all(".cluster", &flip), 1),
        ("a torn cluster", &yaml, &|| all(".cluster", &|file| file.truncate(file.len() - 1)), 1),
        ("another cluster", &yaml, &|| all(".cluster", &|file| theirs.clone_into(file)), 1),
        ("no snapshot", &yaml, &|| remove(".snapshot"), 0),
        ("damaged snapshots", &yaml, &|| all(".snapshot", &|file| file[200] ^= 1), 1),
        ("snapshots without a state", &yaml, &|| all(".snapshot", &|file| file.truncate(700)), 1),
    ];
    for (what, yaml, change, unusable) in cases {
        for (path, content) in &kept {
            fs::write(path, content).unwrap();
        }
        change();
        let life = scene.start(yaml).await;
        for _ in 0..2 {
            life.get(CONFIG_MAPS, JSON).await.assert_unanswered(what);
        }
        assert_eq!(life.count("informerd_snapshots_unusable_total", &[]).await, unusable, "{what}: once for each file");
        life.kill().await;
    }
    // The same directory, before another apiserver.
    let life = other.start(&yaml).await;
    life.get(CONFIG_MAPS, JSON).await.assert_unanswered("another address");
    life.kill().await;
    // As they were, they are served.
    for (path, content) in &kept {
        fs::write(path, content).unwrap();
    }
    let life = scene.start(&yaml).await;
    life.get(CONFIG_MAPS, JSON).await.assert_old("the files as they were");
    life.kill().await;
}
