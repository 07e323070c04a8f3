//! What a read may be older than: nothing that this daemon has shown, unless the apiserver's store was restored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::support::client::{Client, names, rv};
use crate::support::{Through, eventually, until};
use informerd_sim::{Builder, Effect, Fault, Server, Verb};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/configmaps";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consistent_read_never_shows_a_past_that_a_restore_has_undone() {
    let server = Server::builder().revision(1000).start().await.unwrap();
    server.create(config_map("undone")).unwrap();
    let through = Through::before(&server, "consistentReads: { list: probe }\n").await;
    let client = Client::new(&through.url);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    server.faults().rewind(500);
    // Before our own stream is back and tells.
    let list = client.json(CONFIG_MAPS).await;
    assert_eq!(rv(&list), rv(&Client::new(&server.url()).json(CONFIG_MAPS).await), "{list}");
}

/// The store is restored from a backup, and written to so much that it is past what we know before anybody asks for its
/// revision. Its past is another one all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_store_that_has_overtaken_us_is_noticed() {
    let server = Server::builder().revision(1000).start().await.unwrap();
    server.create(config_map("kept")).unwrap();
    let backup = server.revision();
    for n in 0..5 {
        server.create(config_map(&format!("undone-{n}"))).unwrap();
    }
    let through = Through::before(&server, "storeCheck: 1s\n").await;
    let client = Client::new(&through.url);
    let cached = async || {
        let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        let names =
            list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(cached().await.len(), 6);
    server.faults().rewind(backup);
    for n in 0..20 {
        server.create(config_map(&format!("new-{n:02}"))).unwrap();
    }
    until("the cache is the restored store", async || {
        let names = cached().await;
        names.len() == 21 && !names.iter().any(|name| name.starts_with("undone"))
    })
    .await;
    assert!(through.daemon.upstream.metrics().contradictions.get() > 0);
}

/// What the apiserver was asked about config maps since the last look: lists (also of one object), gets, and watches.
struct Asked {
    server: Server,
    before: [u64; 3],
}

impl Asked {
    fn new(server: Server) -> Self {
        Self { server, before: [0; 3] }
    }

    fn since(&mut self) -> [u64; 3] {
        let counts = self.server.counts();
        let of = |verb| counts.requests(verb, "configmaps");
        let now = [of(Verb::List) + of(Verb::Probe), of(Verb::Get), of(Verb::Watch)];
        let since = [0, 1, 2].map(|n| now[n] - self.before[n]);
        self.before = now;
        since
    }
}

async fn crowd(readers: usize, url: &str, read: impl AsyncFn(Client) + Clone + Send + Sync + 'static) {
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..readers {
        let (client, read) = (Client::new(url), read.clone());
        running.spawn_local(async move { read(client).await });
    }
    running.join_all().await;
}

async fn scene(objects: usize, yaml: &str) -> (Through, Client, Asked) {
    let server = Server::builder().start().await.unwrap();
    for n in 0..objects {
        server.create(config_map(&format!("c{n}"))).unwrap();
    }
    let through = Through::before(&server, yaml).await;
    let client = Client::new(&through.url);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let mut asked = Asked::new(server);
    asked.since();
    (through, client, asked)
}

fn another_change(server: &Server, n: usize) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("other-{n}")}});
    server.create(namespace).unwrap();
}

/// With default settings a list is answered from the cache for one small request, whether the store stands still or goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_costs_one_small_request() {
    let (_through, client, mut asked) = scene(30, "").await;
    for n in 0..10 {
        if n >= 5 {
            another_change(&asked.server, n);
        }
        let list = client.json(CONFIG_MAPS).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 30);
        assert!(rv(&list) >= asked.server.revision());
    }
    let [lists, gets, watches] = asked.since();
    // The first read after the store began to go on learns that a revision is not enough any more.
    assert!((10..=12).contains(&lists), "{lists}");
    assert_eq!([gets, watches], [0, 0]);
    let whole = |record: &&informerd_sim::RequestRecord| record.target == CONFIG_MAPS;
    assert_eq!(asked.server.requests().iter().filter(whole).count(), 0, "none is forwarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_a_crowd_share_requests() {
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let (through, _, mut asked) = scene(30, "").await;
            let started = tokio::time::Instant::now();
            crowd(50, &through.url, async |client: Client| {
                for _ in 0..10 {
                    client.json(CONFIG_MAPS).await;
                }
            })
            .await;
            let [lists, ..] = asked.since();
            // No closer than 5 ms, however fast the readers are.
            let most = started.elapsed().as_millis() / 5 + 2;
            assert!(u128::from(lists) <= most && lists < 250, "{lists} lists for 500 reads in {:?}", started.elapsed());
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beginnings_of_watches_share_requests() {
    const WATCH: &str = "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                         &allowWatchBookmarks=true&timeoutSeconds=60";
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let (through, _, mut asked) = scene(30, "").await;
            let started = tokio::time::Instant::now();
            crowd(50, &through.url, async |client: Client| {
                let mut watch = client.watch(WATCH).await;
                while watch.next().await.unwrap().unwrap()["type"] != "BOOKMARK" {}
            })
            .await;
            let [lists, gets, watches] = asked.since();
            let most = started.elapsed().as_millis() / 75 + 2;
            assert!(u128::from(lists) <= most, "{lists} lists for 50 watches in {:?}", started.elapsed());
            assert_eq!([gets, watches], [0, 0]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_get_is_forwarded_and_a_loop_of_gets_is_proved() {
    let (through, client, mut asked) = scene(30, "").await;
    let path = "/api/v1/namespaces/a/configmaps/c1";
    client.json(path).await;
    assert_eq!(asked.since(), [0, 1, 0]);
    let before = through.daemon.reads.metrics().local();
    for _ in 0..20 {
        client.json(path).await;
    }
    let served = through.daemon.reads.metrics().local() - before;
    assert!(served >= 18, "{served} of 20");
    let missing = client.get("/api/v1/namespaces/a/configmaps/none").await;
    assert_eq!(missing.status, 404);
    let [lists, gets, _] = asked.since();
    assert!(gets <= 2 && lists + gets <= 21, "{lists} lists and {gets} gets for 21 gets");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_does_not_start_an_informer() {
    let server = Server::builder().start().await.unwrap();
    server.create(config_map("one")).unwrap();
    let through = Through::before(&server, "").await;
    Client::new(&through.url).json("/api/v1/namespaces/a/configmaps/one").await;
    assert!(through.daemon.factory.informers().is_empty());
}

/// Own writes are always seen; other changes within the age.
#[tokio::test(flavor = "multi_thread")]
async fn bounded_reads_ask_once_an_age() {
    let yaml = "consistentReads: { get: bounded, list: bounded, maxAge: 1s }\n";
    let (through, client, mut asked) = scene(30, yaml).await;
    let started = tokio::time::Instant::now();
    for n in 0..200 {
        another_change(&asked.server, n);
        let list = client.json(CONFIG_MAPS).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 30);
        client.json("/api/v1/namespaces/a/configmaps/c1").await;
    }
    let [lists, gets, watches] = asked.since();
    // Each age begins with a word of the store, and perhaps a comparison.
    let most = (started.elapsed().as_millis() * 10 / 9) / 1000 * 2 + 4;
    assert!(u128::from(lists) <= most, "{lists} lists in {:?}", started.elapsed());
    assert_eq!([gets, watches], [0, 0]);
    for n in 0..5 {
        let name = format!("own-{n}");
        let path = "/api/v1/namespaces/a/configmaps";
        client.write(http::Method::POST, path, &config_map(&name)).await;
        assert_eq!(client.json(&format!("{path}/{name}")).await["metadata"]["name"], name.as_str());
        assert!(client.json(CONFIG_MAPS).await.to_string().contains(&name));
    }
    asked.server.create(config_map("of-another")).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(client.json(CONFIG_MAPS).await.to_string().contains("of-another"));
    drop(through);
}

/// A client that was told that an object is gone is not shown it again, however late the watch is.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_stays_gone() {
    let (_through, client, asked) = scene(2, "").await;
    let path = "/api/v1/namespaces/a/configmaps/c1";
    asked.server.faults().add(Fault::always(Effect::Lag(Duration::from_secs(30))));
    asked.server.delete("configmaps", "a", "c1").unwrap();
    assert_eq!(client.get(path).await.status, 404);
    for path in [CONFIG_MAPS, "/api/v1/namespaces/a/configmaps"] {
        assert_eq!(names(&client.json(&format!("{path}?resourceVersion=0")).await), ["c0"], "{path}");
    }
    assert_eq!(client.get(&format!("{path}?resourceVersion=0")).await.status, 404);
}

/// One informer holds a namespace and another one everything, and each has a stream of its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_informer_answers_with_a_past_that_another_has_left() {
    const A: &str = "/api/v1/namespaces/a/configmaps";
    let object = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
    let objects = (0..300).map(|n| object(["a", "b", "c"][n % 3], &format!("object-{n}")));
    let server = objects.fold(Server::builder(), Builder::object).start().await.unwrap();
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    let mut list = json!(null);
    // A read that has waited for too long is forwarded.
    until("the namespace has an informer", async || {
        list = client.json(&format!("{A}?resourceVersion=0")).await;
        through.daemon.factory.informers().iter().any(|informer| informer.key().scope.namespace.is_some())
    })
    .await;
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(through.daemon.factory.informers().len(), 2);
    let mut watch = client.watch(&format!("{A}?watch=1&resourceVersion={}", rv(&list))).await;
    // The stream of everything says nothing more.
    let stalled = server.faults().add(Fault::once(Effect::Stall).verb(Verb::Watch).on("configmaps"));
    server.create(object("b", "hidden")).unwrap();
    eventually("the stream of everything stands still", || server.faults().hits(stalled) > 0).await;
    server.create(object("a", "shown")).unwrap();
    let event = tokio::time::timeout(Duration::from_secs(30), watch.next()).await.expect("an event in 30 s");
    assert_eq!(event.unwrap().unwrap()["object"]["metadata"]["name"], "shown");
    for path in [CONFIG_MAPS, "/api/v1/configmaps?fieldSelector=metadata.name%3Dshown"] {
        let version = if path.contains('?') { "&resourceVersion=0" } else { "?resourceVersion=0" };
        let list = client.json(&format!("{path}{version}")).await;
        assert!(list.to_string().contains("\"shown\""), "{path}");
    }
}
