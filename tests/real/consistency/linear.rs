//! Reads that ask for the newest state, in the modes `auto` and `probe`: linearizable, whatever happens to the network, as long as
//! they are answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use informerd::lifecycle::spawn;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{JSON, MERGE, Scene};
use crate::cluster::Cluster;
use crate::support::client::{Client, key, rv};
use crate::support::history::{Log, Read, Seen, Selected, State, state};

const LIMITS: &str = "/api/v1/limitranges";
const NAMESPACES: [&str; 2] = ["a", "a-b"];
const GROUPS: [&str; 2] = ["even", "odd"];
const WRITERS: usize = 4;
const READERS: usize = 6;
/// Another resource of the same store, whose reads share their questions with those of the collection.
const NEIGHBOUR: &str = "/api/v1/serviceaccounts";

/// What writers and readers of one run share.
struct Run {
    /// Acknowledged writes of each key.
    acknowledged: Mutex<BTreeMap<String, usize>>,
    /// Numbers beginnings and ends.
    clock: AtomicU64,
    stop: AtomicBool,
    reads: Mutex<Vec<Read>>,
}

/// How long one seed runs at least. `INFORMERD_TEST_SECONDS` makes it longer.
fn run_time() -> Duration {
    let seconds = std::env::var("INFORMERD_TEST_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// The usual seed, or another one where `INFORMERD_SEED` is set. What else happens depends on the rests by 2 and 3, which are those
/// of the usual one.
fn chosen(usual: u64) -> u64 {
    let first: Option<u64> = std::env::var("INFORMERD_SEED").ok().and_then(|text| text.parse().ok());
    first.unwrap_or(0) * 60 + usual
}

impl Run {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// Writers that go to the apiserver directly, readers that go through the daemon, until there were enough reads, and as many
/// from a cache; the verdict of the log. `meanwhile` is done to the network again and again.
async fn run(
    scene: &Scene,
    collection: &str,
    seed: u64,
    enough: usize,
    meanwhile: impl Fn(&Scene, u64),
) -> (usize, Vec<String>) {
    let run = Arc::new(Run {
        acknowledged: Mutex::default(),
        clock: AtomicU64::new(1),
        stop: AtomicBool::new(false),
        reads: Mutex::default(),
    });
    let start = rv(&scene.direct.json(collection).await);
    let mut watch = scene.direct.watch(&format!("{collection}?watch=1&resourceVersion={start}")).await;
    let before = scene.direct.json(collection).await;
    assert_eq!(before["items"].as_array().unwrap().len(), 0, "each run begins with an empty collection");
    // The informer runs before the first write.
    scene.through.json(&format!("{collection}?resourceVersion=0")).await;

    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let (run, direct, collection) = (run.clone(), scene.direct.clone(), collection.to_owned());
        tasks.push(spawn("writer", async move { write(&run, &direct, &collection, writer, seed).await }));
    }
    for reader in 0..READERS {
        let (run, through, collection) = (run.clone(), scene.through.clone(), collection.to_owned());
        tasks.push(spawn("reader", async move { read(&run, &through, &collection, reader, seed).await }));
    }
    scene.through.json(&format!("{NEIGHBOUR}?resourceVersion=0")).await;
    let (neighbour, through) = (run.clone(), scene.through.clone());
    tasks.push(spawn("neighbour", async move {
        while !neighbour.stop.load(Ordering::SeqCst) {
            whole(&through, NEIGHBOUR).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }));
    // The store goes on whether the collection changes or not, in every other run.
    let (noise, direct) = (run.clone(), scene.direct.clone());
    tasks.push(spawn("noise", async move {
        for n in (0..).take_while(|_| seed % 2 == 1) {
            let body = format!(r#"{{"metadata":{{"annotations":{{"noise":"{n}"}}}}}}"#);
            direct.request(Method::PATCH, "/api/v1/namespaces/a", &[MERGE], &body).await;
            tokio::time::sleep(Duration::from_millis(15)).await;
            if noise.stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }));
    let until = Instant::now() + run_time();
    let mut round = 0;
    while Instant::now() < until || run.reads.lock().len() < enough || scene.served() < enough as u64 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        meanwhile(scene, round);
        round += 1;
    }
    run.stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    let total: usize = run.acknowledged.lock().values().sum();
    let mut log = Log::default();
    while log.events.len() < total {
        let event = watch.next().await.unwrap().expect("the log goes on");
        log.push_event(&event);
    }
    let reads = std::mem::take(&mut *run.reads.lock());
    let keys: Vec<String> = run.acknowledged.lock().keys().cloned().collect();
    for key in keys {
        let (namespace, name) = key.split_once('/').unwrap();
        delete(&scene.direct, collection, namespace, name).await;
    }
    (reads.len(), log.check(&reads))
}

fn object_path(collection: &str, namespace: &str, name: &str) -> String {
    let (base, plural) = collection.rsplit_once('/').unwrap();
    format!("{base}/namespaces/{namespace}/{plural}/{name}")
}

async fn delete(client: &Client, collection: &str, namespace: &str, name: &str) -> bool {
    let path = object_path(collection, namespace, name);
    client.request(Method::DELETE, &path, &[], "").await.status.is_success()
}

/// Its own key: created, changed some times, deleted, created again, with pauses in which nothing happens.
async fn write(run: &Run, direct: &Client, collection: &str, writer: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed * 1000 + writer as u64);
    let (namespace, name) = (NAMESPACES[writer % 2], format!("w{writer}"));
    let path = object_path(collection, namespace, &name);
    let parent = path.rsplit_once('/').unwrap().0.to_owned();
    let mut exists = false;
    for n in 0.. {
        if run.stop.load(Ordering::SeqCst) {
            return;
        }
        let group = GROUPS[random.random_range(0..2)];
        let (api_version, kind) = match collection {
            LIMITS => ("v1", "LimitRange"),
            _ => ("stable.example.com/v1", "CronTab"),
        };
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": {"group": group}, "annotations": {"n": n.to_string()}}});
        let answer = if !exists {
            exists = true;
            direct.request(Method::POST, &parent, &[JSON], &body.to_string()).await
        } else if random.random_bool(0.3) {
            exists = false;
            direct.request(Method::DELETE, &path, &[], "").await
        } else {
            direct.request(Method::PATCH, &path, &[MERGE], &body.to_string()).await
        };
        assert!(answer.status.is_success(), "{}", answer.text());
        *run.acknowledged.lock().entry(format!("{namespace}/{name}")).or_default() += 1;
        let pause = if random.random_bool(0.2) { 200 } else { random.random_range(0..20) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

async fn read(run: &Run, through: &Client, collection: &str, reader: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed * 1000 + 500 + reader as u64);
    while !run.stop.load(Ordering::SeqCst) {
        let (acknowledged, began) = {
            let acknowledged = run.acknowledged.lock();
            (acknowledged.clone(), run.tick())
        };
        let group = random.random_bool(0.5).then(|| GROUPS[random.random_range(0..2)].to_owned());
        let selector = group.as_ref().map_or(String::new(), |group| format!("labelSelector=group%3D{group}"));
        let of = Selected { namespace: None, group };
        let shows = |of, limit| move |(rv, state)| Seen::Collection { rv, state, of, limit };
        let (what, seen) = match random.random_range(0..4) {
            0 => {
                let writer = random.random_range(0..WRITERS);
                let (namespace, name) = (NAMESPACES[writer % 2], format!("w{writer}"));
                let path = object_path(collection, namespace, &name);
                let seen = get(through, &path).await.map(|rv| Seen::Object { key: format!("{namespace}/{name}"), rv });
                (format!("GET {path}"), seen)
            }
            1 => {
                let path = format!("{collection}?limit=2");
                let seen = list(through, &path).await.map(shows(Selected::default(), Some(2)));
                (path, seen)
            }
            2 => {
                let path = format!("{collection}?{selector}");
                let seen = list(through, &path).await.map(shows(of, None));
                (path, seen)
            }
            _ => {
                let initial =
                    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                let path = format!("{collection}?{initial}&timeoutSeconds=5&{selector}");
                let seen = watch_list(through, &path).await.map(shows(of, None));
                (path, seen)
            }
        };
        // A read that the network has broken tells nothing; 502 and 503 are answers of a broken network, too.
        if let Some(seen) = seen {
            let ended = run.tick();
            let (from, until) = (0, u64::MAX);
            run.reads.lock().push(Read { what, began, ended, acknowledged, from, until, seen });
        }
    }
}

/// The object's revision, `None` within if there is no object.
async fn get(client: &Client, path: &str) -> Option<Option<u64>> {
    let (status, body) = whole(client, path).await?;
    match status.as_u16() {
        200 => Some(Some(rv(&serde_json::from_slice(&body).unwrap()))),
        404 => Some(None),
        _ => None,
    }
}

/// An answer that came to its end.
async fn whole(client: &Client, path: &str) -> Option<(StatusCode, Bytes)> {
    let (head, body) = client.send(Method::GET, path, &[], "").await.into_parts();
    Some((head.status, body.collect().await.ok()?.to_bytes()))
}

async fn list(client: &Client, path: &str) -> Option<(u64, State)> {
    let (status, body) = whole(client, path).await?;
    if !status.is_success() {
        return None;
    }
    let list: Value = serde_json::from_slice(&body).unwrap();
    Some((rv(&list), state(&list)))
}

/// The state up to the bookmark that ends it.
async fn watch_list(client: &Client, path: &str) -> Option<(u64, State)> {
    let mut watch = client.watch(path).await;
    if !watch.status.is_success() {
        return None;
    }
    let mut state = State::new();
    while let Ok(Some(event)) = watch.next().await {
        match event["type"].as_str().unwrap() {
            "ADDED" => assert!(state.insert(key(&event["object"]), rv(&event["object"])).is_none(), "{event}"),
            "BOOKMARK" => return Some((rv(&event["object"]), state)),
            "ERROR" => return None,
            other => panic!("{other} among the initial events: {event}"),
        }
    }
    None
}

const PROBE: &str = "consistentReads: probe\n";
const AUTO: &str = "consistentReads: auto\n";
const CACHE: &str = "consistentReads: cache\n";

/// The same, and nothing is wrong.
async fn is_linear(scene: &Scene, collection: &str, seed: u64, enough: usize, meanwhile: impl Fn(&Scene, u64)) {
    let (_, wrong) = run(scene, collection, seed, enough, meanwhile).await;
    assert!(wrong.is_empty(), "seed {seed}: {}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_misses_an_acknowledged_write() {
    for (seed, mode) in [(1, PROBE), (3, AUTO), (4, AUTO)] {
        is_linear(&Scene::start(mode).await, LIMITS, chosen(seed), 30, |_, _| {}).await;
    }
}

/// What is said of the store of one resource proves nothing of a resource in another one.
#[tokio::test(flavor = "multi_thread")]
async fn no_read_misses_a_write_to_a_store_of_its_own() {
    let other = Cluster::start().await;
    let stores = format!("--apiserver-flag=etcd-servers-overrides=/limitranges#{}", other.etcd());
    let scene = Scene::before(Cluster::start_with(&[&stores]).await, &[], AUTO).await;
    is_linear(&scene, LIMITS, chosen(41), 30, |_, _| {}).await;
    let checks = scene.direct.get("/readyz?verbose").await.text();
    assert!(checks.contains("etcd-override-0"), "{checks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_misses_a_write_that_another_apiserver_has_acknowledged() {
    let cluster = Cluster::start().await;
    let second = cluster.second_apiserver().await;
    let scene = Scene::before(cluster, &[&second.server], AUTO).await;
    // Readers go by the second apiserver, which is late, and back; writers by the first.
    for seed in (31..33).map(chosen) {
        is_linear(&scene, LIMITS, seed, 10, |scene, round| {
            scene.proxy.lag(1, Duration::from_millis([0, 30][(round % 2) as usize]));
            if round % 7 == 3 {
                scene.proxy.choose(usize::from(round % 2 == 1));
                scene.proxy.cut();
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_misses_an_acknowledged_write_on_a_bad_network() {
    let scene = Scene::start(AUTO).await;
    for seed in (11..14).map(chosen) {
        is_linear(&scene, "/apis/stable.example.com/v1/crontabs", seed, 5, |scene, round| {
            // The log of the apiserver is read directly; only the daemon suffers.
            scene.proxy.lag(0, Duration::from_millis([0, 40, 400][(seed + round / 3) as usize % 3]));
            if round % 5 == 4 {
                scene.proxy.cut();
            }
        })
        .await;
    }
}

/// The test of the test: a cache that is served without a proof, and is late, is found out.
#[tokio::test(flavor = "multi_thread")]
async fn reads_without_a_proof_are_found_out() {
    let scene = Scene::start(CACHE).await;
    scene.proxy.lag(0, Duration::from_millis(300));
    let (reads, wrong) = run(&scene, LIMITS, 21, 30, |_, _| {}).await;
    assert!(wrong.len() > reads / 20, "{} of {reads} are wrong", wrong.len());
    assert!(wrong.iter().any(|why| why.contains("was acknowledged before")), "{wrong:?}");
}
