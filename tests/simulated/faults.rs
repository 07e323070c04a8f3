//! The whole daemon between a simulated apiserver and an informer that checks every promise. What the apiserver does wrong is in
//! `seeded`, except for what it does once at a certain moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::client::{Client, rv};
use crate::support::informer::Informer;
use crate::support::{Through, eventually, until};
use informerd::lifecycle;
use informerd_sim::{Builder, Cut, Effect, Fault, Server, Verb};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/configmaps";

fn config_map(namespace: &str, name: &str, app: &str, n: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "data": {"n": n.to_string()},
    })
}

/// Creates, changes, relabels and deletes, until told to stop. Deterministic but for its length.
struct Churn {
    stop: Arc<AtomicBool>,
    steps: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Churn {
    fn start(server: &Server) -> Self {
        let (stop, steps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (server, stopped, taken) = (server.store().clone(), stop.clone(), steps.clone());
        let task = lifecycle::spawn("churn", async move {
            let mut n = 0u64;
            while !stopped.load(Ordering::Relaxed) {
                n += 1;
                let step = n.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17) ^ n;
                let (namespace, name) = (["a", "b", "a-b"][(step % 3) as usize], format!("cm-{}", (step >> 8) % 20));
                let key = informerd_sim::ObjectKey::new(namespace, &name);
                let object = config_map(namespace, &name, ["x", "y"][(step >> 16) as usize % 2], n);
                // Whatever fails does so because the object is there already, or is not.
                match (step >> 24) % 5 {
                    0 => drop(server.delete("configmaps", &key)),
                    1 | 2 => drop(server.create(object)),
                    _ => drop(server.update(object)),
                }
                taken.store(n, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        Self { stop, steps, task }
    }

    fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

struct World {
    server: Server,
    through: Through,
    informers: Vec<Informer>,
    churn: Churn,
}

/// A daemon under churn, with informers on everything, a namespace and a label.
async fn world(builder: Builder) -> World {
    let server = builder.start().await.unwrap();
    for n in 0..10 {
        server.create(config_map("a", &format!("cm-{n}"), "x", 0)).unwrap();
    }
    let through = Through::before(&server, "").await;
    let churn = Churn::start(&server);
    let client = Client::new(&through.url);
    let informers = vec![
        Informer::start(client.clone(), CONFIG_MAPS, ""),
        Informer::start(client.clone(), "/api/v1/namespaces/a/configmaps", ""),
        Informer::start(client, CONFIG_MAPS, "&labelSelector=app%3Dx"),
    ];
    for informer in &informers {
        eventually("the informers have synced", || informer.seen().last > 0).await;
    }
    World { server, through, informers, churn }
}

impl World {
    /// Lets the churn go on, then compares: every informer has exactly the server's objects.
    async fn settles(self, what: &str) {
        let enough = self.churn.steps() + 100;
        eventually("the churn goes on", || self.churn.steps() >= enough).await;
        self.churn.stop().await;
        let server = &self.server;
        let everything = || server.state("configmaps");
        self.informers[0].reaches(what, everything).await;
        self.informers[1]
            .reaches(what, || everything().into_iter().filter(|(key, _)| key.starts_with("a/")).collect())
            .await;
        // What the selector selects is asked of the server directly.
        let direct = Client::new(&server.url()).json(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx")).await;
        let selected: std::collections::BTreeMap<String, u64> = direct["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (crate::support::client::key(item), rv(item)))
            .collect();
        self.informers[2].reaches(what, || selected.clone()).await;
        // And a list from the cache is the server's list.
        let through = Client::new(&self.through.url).json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        let direct = Client::new(&server.url()).json(CONFIG_MAPS).await;
        assert_eq!(through["items"], direct["items"], "{what}");
        assert!(server.counts().most_watches("configmaps") <= 3, "{what}: one watch, and at most probes beside it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_faults_no_relists() {
    let world = world(Server::builder()).await;
    let informers: Vec<_> = world.informers.iter().map(|informer| informer.seen.clone()).collect();
    world.settles("without faults").await;
    for seen in informers {
        let seen = seen.lock();
        assert_eq!((seen.lists, seen.resumes, seen.expired), (1, 0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_watch_list() {
    let server = Server::builder().start().await.unwrap();
    server.faults().add(Fault::always(Effect::RefuseWatchList));
    for n in 0..1200 {
        server.create(config_map("a", &format!("many-{n}"), "x", n)).unwrap();
    }
    let through = Through::before(&server, "").await;
    let informer = Informer::start(Client::new(&through.url), CONFIG_MAPS, "");
    informer.reaches("paged lists", || server.state("configmaps")).await;
    server.create(config_map("a", "later", "x", 0)).unwrap();
    informer.reaches("watched", || server.state("configmaps")).await;
    assert_eq!(informer.seen().lists, 1);
}

/// Every watch of a large collection is open and says nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn where_no_watch_says_anything_lists_do() {
    let objects = (0..=5000).map(|n| config_map("a", &format!("cm-{n}"), "x", n));
    let builder = Server::builder().bookmark_every(Duration::from_millis(100));
    let server = objects.fold(builder, Builder::object).start().await.unwrap();
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    let informer = Informer::start(client.clone(), CONFIG_MAPS, "");
    informer.reaches("synced", || server.state("configmaps")).await;
    server.create(config_map("a", "first", "x", 0)).unwrap();
    let status = || through.daemon.factory.informers()[0].status();
    eventually("bookmarks come", || status().bookmarks >= 2).await;
    server.faults().add(Fault::always(Effect::Stall).on("configmaps"));
    // More than a comparison has room for.
    for n in 0..100 {
        server.create(config_map("a", &format!("missed-{n}"), "x", n)).unwrap();
    }
    until("what was missed is told", async || {
        client.json("/api/v1/namespaces/a/configmaps/missed-0").await;
        informer.seen.lock().state == server.state("configmaps")
    })
    .await;
    assert!(status().silences >= 2 && status().relists >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_without_compaction_resumes() {
    let world = world(Server::builder()).await;
    let seen = world.informers[0].seen.clone();
    world.server.restart(Duration::from_millis(300), false).await.unwrap();
    world.settles("restart").await;
    assert_eq!(seen.lock().lists, 1, "clients noticed nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_served_while_the_apiserver_is_away() {
    let server = Server::builder().start().await.unwrap();
    server.create(config_map("a", "one", "x", 1)).unwrap();
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    let informer = Informer::start(client.clone(), CONFIG_MAPS, "");
    informer.reaches("synced", || server.state("configmaps")).await;
    let serving = Through::before(&server, "whileAway: serve\n").await;
    let tolerant = Client::new(&serving.url);
    tolerant.json(&format!("{CONFIG_MAPS}?resourceVersion={}", server.revision())).await;
    server.faults().add(Fault::always(Effect::Reset));
    // The streams of both daemons.
    server.faults().add(Fault::always(Effect::Cut(Cut::Rst)).on("configmaps"));
    server.create(config_map("a", "unseen", "x", 1)).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    // What must be asked of the apiserver is refused, and says so.
    let answer = client.get("/api/v1/namespaces/a/secrets").await;
    assert!([503, 504].contains(&answer.status.as_u16()), "{} {}", answer.status, answer.text());
    assert_eq!(answer.json()["kind"], "Status");
    assert!(answer.text().contains("informerd"), "{}", answer.text());
    assert_eq!(client.get(CONFIG_MAPS).await.headers.get("warning"), None);
    // Unless the last state will do, and says that it is.
    let answer = tolerant.get(CONFIG_MAPS).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["items"].as_array().unwrap().len(), 1);
    assert!(answer.headers["warning"].to_str().unwrap().starts_with("110 - \"informerd: "), "{:?}", answer.headers);
}

/// A forwarded list shows a revision that no event of a quiet type will ever reach. The cache is brought there all the
/// same, so that it can still answer when the apiserver is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_cache_follows_what_was_forwarded_and_outlives_the_apiserver() {
    let server = Server::builder().start().await.unwrap();
    server.create(config_map("a", "one", "x", 1)).unwrap();
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})).unwrap();
    let shown = rv(&client.json(CONFIG_MAPS).await);
    eventually("the cache is there", || {
        through.daemon.factory.informers().iter().all(|informer| informer.cache().resource_version().get() >= shown)
    })
    .await;
    server.faults().add(Fault::always(Effect::Reset));
    server.faults().reset_connections();
    let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert!(rv(&list) >= shown);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsynced_cache_never_answers() {
    let server = Server::builder().start().await.unwrap();
    server.create(config_map("a", "one", "x", 1)).unwrap();
    server.faults().add(Fault::always(Effect::NoInitialEnd).on("configmaps").verb(Verb::Watch));
    for (yaml, code) in
        [("notSynced: { wait: 300ms, then: \"429\" }\n", 429), ("notSynced: { wait: 300ms, then: forward }\n", 200)]
    {
        let through = Through::before(&server, yaml).await;
        let answer = Client::new(&through.url).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        assert_eq!(answer.status.as_u16(), code, "{}", answer.text());
        if code == 200 {
            assert_eq!(answer.json()["items"].as_array().unwrap().len(), 1, "forwarded, never empty");
        } else {
            assert_eq!(answer.headers["retry-after"], "1");
            assert_eq!(answer.json()["reason"], "TooManyRequests");
        }
    }
}
