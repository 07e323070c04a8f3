//! What a read may be older than: nothing that this daemon has shown, unless the apiserver's store was restored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::support::client::{Client, names, rv};
use crate::support::{Through, eventually, until, within};
use crate::{CONFIG_MAPS, config_map};
use http::Method;
use informerd_sim::{Effect, Fault, Server, Verb};
use serde_json::json;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn a_consistent_read_never_shows_a_past_that_a_restore_has_undone() {
    let server = Server::builder().revision(1000).start().await.unwrap();
    server.create(config_map("undone")).unwrap();
    let through = Through::before(&server, "consistentReads: probe\n").await;
    let client = Client::new(&through.url);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    server.faults().rewind(500);
    // Before our own stream is back and tells.
    let list = client.json(CONFIG_MAPS).await;
    assert_eq!(rv(&list), rv(&Client::new(&server.url()).json(CONFIG_MAPS).await), "{list}");
}

/// It is written to so much that it is past what we know before anybody asks for its revision.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_store_that_has_overtaken_us_is_noticed() {
    let (server, through, client) = Through::simulated([config_map("kept")], "storeCheck: 1s\n").await;
    let backup = server.revision();
    for n in 0..5 {
        server.create(config_map(&format!("undone-{n}"))).unwrap();
    }
    let cached = async || client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(names(&cached().await).len(), 6);
    server.faults().rewind(backup);
    for n in 0..20 {
        server.create(config_map(&format!("new-{n:02}"))).unwrap();
    }
    until("the cache is the restored store", async || {
        let list = cached().await;
        let names = names(&list);
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

/// The path of a watch of everything, whose state ends with a bookmark.
fn state(resource: &str) -> String {
    format!(
        "/api/v1/{resource}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
         &allowWatchBookmarks=true&timeoutSeconds=60"
    )
}

/// Reads such a watch up to its bookmark.
async fn read_state(client: &Client, resource: &str) -> serde_json::Value {
    let mut watch = client.watch(&state(resource)).await;
    loop {
        let event = watch.next().await.unwrap().unwrap();
        if event["type"] == "BOOKMARK" {
            return event;
        }
    }
}

/// A cache that has 30 objects, and follows them.
async fn scene(yaml: &str) -> (Through, Client, Asked) {
    let (server, through, client) = Through::simulated((0..30).map(|n| config_map(&format!("c{n}"))), yaml).await;
    read_state(&client, "configmaps").await;
    let mut asked = Asked::new(server);
    asked.since();
    (through, client, asked)
}

fn another_change(server: &Server, n: usize) {
    let metadata = json!({"name": format!("other-{n}")});
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).unwrap();
}

/// What a start asks for is read in the form of the read that caused it, shows its form, and is the proof for that read.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_costs_what_its_first_reader_would_have_cost() {
    let objects = (0..30).map(|n| config_map(&format!("c{n}")));
    let (server, through, client) = Through::simulated(objects, "consistentReads: probe\n").await;
    let asked = async |resource: &str| {
        let follow = || through.daemon.factory.informers().iter().all(|one| one.status().state == "follow");
        eventually("it follows", follow).await;
        [Verb::Probe, Verb::List, Verb::Get, Verb::Watch].map(|verb| server.counts().requests(verb, resource))
    };
    let list = client.json(CONFIG_MAPS).await;
    assert_eq!((names(&list).len(), rv(&list)), (30, server.revision()));
    assert_eq!(asked("configmaps").await, [0, 1, 0, 1]);
    // Whether the apiserver marks the end of watch-lists is unknown before the first.
    for (resource, probes) in [("pods", 1), ("services", 0), ("nodes", 0)] {
        let end = read_state(&client, resource).await;
        assert_eq!(end["object"]["metadata"]["resourceVersion"], server.revision().to_string());
        assert_eq!(asked(resource).await, [probes, 0, 0, 1], "{resource}");
    }
    // The form of bookmarks was not in the list.
    let direct = Client::new(&server.url());
    for (n, client) in [&direct, &client, &client].into_iter().enumerate() {
        let end = read_state(client, "configmaps").await;
        let wanted = read_state(&direct, "configmaps").await;
        assert_eq!(end, wanted, "{n}");
    }
    let [probes, lists, _, watches] = asked("configmaps").await;
    // Of these, one is the informer's, one is for the bookmark, and four are direct.
    assert_eq!((lists, watches), (1, 6), "{probes} probes");
}

/// With default settings a list is answered from the cache for one small request, whether the store stands still or goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_costs_one_small_request() {
    let (_through, client, mut asked) = scene("").await;
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
async fn beginnings_of_watches_share_requests() {
    let (through, _, mut asked) = scene("").await;
    let started = Instant::now();
    let begun = (0..50).map(|_| async {
        read_state(&Client::new(&through.url), "configmaps").await;
    });
    futures_util::future::join_all(begun).await;
    let [lists, gets, watches] = asked.since();
    // No closer than 75 ms, however many begin.
    let most = started.elapsed().as_millis() / 75 + 2;
    assert!(u128::from(lists) <= most, "{lists} lists for 50 watches in {:?}", started.elapsed());
    assert_eq!([gets, watches], [0, 0]);
}

/// Own writes are always seen; other changes within the age.
#[tokio::test(flavor = "multi_thread")]
async fn bounded_reads_ask_once_an_age() {
    const A: &str = "/api/v1/namespaces/a/configmaps";
    let (_through, client, mut asked) = scene("consistentReads: bounded=1s\n").await;
    let started = Instant::now();
    for n in 0..200 {
        another_change(&asked.server, n);
        assert_eq!(names(&client.json(CONFIG_MAPS).await).len(), 30);
        client.json(&format!("{A}/c1")).await;
    }
    let [lists, gets, watches] = asked.since();
    // Each age begins with a word of the store, a quarter of it before the last one ends, and perhaps a comparison.
    let most = started.elapsed().as_millis() / 750 * 2 + 4;
    let told = format!("{lists} lists and {gets} gets in {:?}", started.elapsed());
    assert!(u128::from(lists + gets) <= most && watches == 0, "{told}");
    for n in 0..5 {
        let name = format!("own-{n}");
        client.write(Method::POST, A, &config_map(&name)).await;
        assert_eq!(client.json(&format!("{A}/{name}")).await["metadata"]["name"], name.as_str());
        assert!(names(&client.json(CONFIG_MAPS).await).contains(&&*name));
    }
    asked.server.create(config_map("of-another")).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert!(client.json(CONFIG_MAPS).await.to_string().contains("of-another"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_get_is_forwarded_and_a_loop_of_gets_is_proved() {
    let (through, client, mut asked) = scene("").await;
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
async fn a_loop_of_gets_does_not_start_an_informer() {
    let (server, through, client) = Through::simulated([config_map("one")], "").await;
    for _ in 0..20 {
        client.json("/api/v1/namespaces/a/configmaps/one").await;
    }
    assert!(through.daemon.factory.informers().is_empty());
    assert_eq!(Asked::new(server).since(), [0, 20, 0], "each is forwarded, and nothing else is asked");
}

/// One informer holds a namespace and another one everything, and each has a stream of its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_informer_answers_with_a_past_that_another_has_left() {
    const A: &str = "/api/v1/namespaces/a/configmaps";
    let object = |namespace: &str, name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
    let objects = (0..300).map(|n| object(["a", "b", "c"][n % 3], &format!("object-{n}")));
    let (server, through, client) = Through::simulated(objects, "").await;
    let mut list = json!(null);
    // A read that has waited for too long is forwarded. The stream that is to stand still must not do so before its state is
    // complete, and an informer of everything that has just found out how much that is ends.
    for (whole, path) in [(false, A), (true, CONFIG_MAPS)] {
        until("there is an informer with a state", async || {
            let read = client.json(&format!("{path}?resourceVersion=0")).await;
            list = if whole { list.take() } else { read };
            let informers = through.daemon.factory.informers();
            informers.iter().any(|one| one.key().scope.namespace.is_none() == whole && one.status().state == "follow")
        })
        .await;
    }
    let mut watch = client.watch(&format!("{A}?watch=1&resourceVersion={}", rv(&list))).await;
    // The stream of everything says nothing more.
    let stalled = server.faults().add(Fault::once(Effect::Stall).verb(Verb::Watch).on("configmaps"));
    server.create(object("b", "hidden")).unwrap();
    eventually("the stream of everything stands still", || server.faults().hits(stalled) > 0).await;
    server.create(object("a", "shown")).unwrap();
    let event = within("an event of the other stream", watch.next()).await;
    assert_eq!(event.unwrap().unwrap()["object"]["metadata"]["name"], "shown");
    for more in ["", "&fieldSelector=metadata.name%3Dshown"] {
        let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0{more}")).await;
        assert!(list.to_string().contains("\"shown\""), "{more}");
    }
}

/// Its cache may be gone, and another apiserver behind the same address may lag.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cache_has_shown_is_asked_for_after_it_is_gone() {
    let settings = "idleTimeout: 300ms\nlimits: { maxInformers: 1 }\n";
    let (server, through, client) = Through::simulated([config_map("a")], settings).await;
    let shown = rv(&client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await);
    eventually("its informer stops", || through.daemon.factory.informers().is_empty()).await;
    // There is room for one.
    let _watch = client.watch("/api/v1/namespaces?watch=1&resourceVersion=0").await;
    assert_eq!(through.daemon.factory.informers().len(), 1);
    for (path, query) in [
        (CONFIG_MAPS, format!("resourceVersion={shown}&resourceVersionMatch=NotOlderThan")),
        ("/api/v1/namespaces/a/configmaps/a", format!("resourceVersion={shown}")),
    ] {
        client.json(&format!("{path}?resourceVersion=0")).await;
        let forwarded = server.requests().into_iter().rfind(|request| request.target.starts_with(path));
        assert_eq!(forwarded.map(|request| request.target), Some(format!("{path}?{query}")));
    }
}
