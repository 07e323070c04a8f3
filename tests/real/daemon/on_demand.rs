//! Informers start with the first request and end when nobody needs them.

use std::time::Duration;

use informerd::codec::{Format, Shape};
use informerd::informer::{Sought, Use};
use informerd::meta::{self, Encoding, Gvr, ListOptions, Scope};
use informerd::reads::{Fate, Outcome, ReadRequest, Wait};
use informerd::selector::Predicate;
use informerd_sim::{Server, Verb};

use super::fixtures::{CONFIG_MAPS, config_map, informers, reads, syncs_late};
use crate::support::client::{Client, names};
use crate::support::metrics::only;
use crate::support::{Through, eventually, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_first_list_starts_an_informer_and_idleness_stops_it() {
    let (server, through, client) = Through::simulated([config_map("a", "one")], "idleTimeout: 400ms\n").await;
    through.ready().await;
    assert!(informers(&through).is_empty() && server.counts().open_watches("configmaps") == 0);
    for round in 1..=3 {
        syncs_late(&server, "configmaps", 1);
        let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        assert_eq!(names(&list).len(), round, "round {round}");
        assert_eq!(informers(&through), ["v1/configmaps"]);
        eventually("the idle informer is stopped", || informers(&through).is_empty()).await;
        eventually("its upstream watch is closed", || server.counts().open_watches("configmaps") == 0).await;
        server.create(config_map("a", &format!("round-{round}"))).unwrap();
    }
    assert_eq!(reads(&through, "wait", "not_synced"), 3, "each list waited for its informer");

    // An open watch keeps it.
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.create(config_map("a", "last")).unwrap();
    while watch.next_event().await["object"]["metadata"]["name"] != "last" {}
    assert_eq!(informers(&through), ["v1/configmaps"]);
    drop(watch);
    eventually("stopped once the watch is gone", || informers(&through).is_empty()).await;
}

/// A list that is forwarded in any case starts nothing. The watch that follows it does, and is served.
#[tokio::test(flavor = "multi_thread")]
async fn a_forwarded_list_starts_no_informer_and_its_watch_does() {
    let (server, through, client) = Through::simulated([config_map("a", "one")], "consistentReads: upstream\n").await;
    through.ready().await;
    client.json(CONFIG_MAPS).await;
    let list = client.json(CONFIG_MAPS).await;
    assert!(informers(&through).is_empty());
    assert_eq!(server.counts().requests(Verb::List, "configmaps"), 2);
    let rv = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={rv}")).await;
    assert_eq!(informers(&through), ["v1/configmaps"]);
    server.create(config_map("a", "two")).unwrap();
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "two");
    assert_eq!(server.counts().most_watches("configmaps"), 1, "served from the cache");
}

/// As the deletion of a namespace lists each resource in it twice. The apiserver is asked what it would be asked without us.
#[tokio::test(flavor = "multi_thread")]
async fn a_few_lists_of_parts_start_no_informer_and_more_of_them_do() {
    const A: &str = "/api/v1/namespaces/a/configmaps";
    let objects = (0..30).map(|n| config_map(["a", "b"][n % 2], &format!("object-{n:02}")));
    let (server, through, client) = Through::simulated(objects, "").await;
    through.ready().await;
    let reason = async |path: &str| through.admin().json(&format!("/explain{path}")).await["reason"].clone();
    for path in [A.to_owned(), A.to_owned(), format!("{A}?labelSelector=none"), format!("{CONFIG_MAPS}?limit=10")] {
        assert_eq!(reason(&path).await, "seldom", "{path}");
        client.json(&path).await;
    }
    // The pages that follow have the revision of the first one, whatever their size.
    let mut token = client.json(&format!("{CONFIG_MAPS}?limit=12")).await["metadata"]["continue"].clone();
    while let Some(next) = token.as_str().filter(|next| !next.is_empty()) {
        token = client.json(&format!("{CONFIG_MAPS}?limit=12&continue={next}")).await["metadata"]["continue"].clone();
    }
    assert!(informers(&through).is_empty());
    let asked = |verb| server.counts().requests(verb, "configmaps");
    assert_eq!([Verb::Probe, Verb::List, Verb::Watch].map(asked), [0, 7, 0]);
    assert_eq!(reads(&through, "forward", "seldom"), 7);
    // A list of everything costs as much as its informer.
    assert_eq!(reason(CONFIG_MAPS).await, "not_synced");
    // With what came before, these have cost as much as well.
    for _ in 0..3 {
        client.json(A).await;
    }
    assert_eq!(informers(&through), ["v1/configmaps"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_informers_than_the_bound_are_not_started() {
    let (server, through, client) = Through::simulated([config_map("a", "one")], "limits: { maxInformers: 2 }\n").await;
    through.ready().await;
    for path in ["/api/v1/nodes", "/api/v1/services", CONFIG_MAPS] {
        client.json(&format!("{path}?resourceVersion=0")).await;
    }
    assert_eq!(informers(&through), ["v1/nodes", "v1/services"]);
    // Forwarded, and right: list and watch.
    let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(names(&list), ["one"]);
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "one");
    assert_eq!(server.counts().requests(Verb::List, "configmaps"), 2);
    assert_eq!(reads(&through, "forward", "too_many_informers"), 3);
    assert_eq!(only(&through.admin().metrics().await, "informerd_informers_limit", &[]), 2.0);
    // What runs goes on being served.
    client.json("/api/v1/nodes?resourceVersion=0").await;
    assert_eq!(server.counts().requests(Verb::List, "nodes"), 1, "by the informer");
}

/// Has 300 ConfigMaps in three namespaces. Until the apiserver has answered, a read cannot be forwarded, and starts an informer of
/// them all. So these tests wait until informerd is ready.
async fn large() -> (Server, Through, Client) {
    let objects: [_; 300] = std::array::from_fn(|n| config_map(["a", "b", "c"][n % 3], &format!("object-{n:03}")));
    let (server, through, client) = Through::simulated(objects, "").await;
    through.ready().await;
    (server, through, client)
}

/// An informer that has ended because there are too many objects is removed a moment later than its reader is answered.
async fn remain(through: &Through, expected: &[&str]) {
    eventually("only these informers remain", || informers(through) == expected).await;
}

/// The same. On a busy machine, a list may be forwarded before it is known that all objects are too many; no informer of the
/// namespace is started then, but by the next list.
async fn remain_after(through: &Through, client: &Client, path: &str, expected: &[&str]) {
    until("only these informers remain", async || {
        if informers(through) != expected {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let remain = informers(through) == expected;
        if !remain {
            client.json(path).await;
        }
        remain
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_one_namespace_of_many_objects_does_not_have_all_of_them_listed() {
    let (server, through, client) = large().await;
    const A: &str = "/api/v1/namespaces/a/configmaps";
    for path in [format!("{A}?resourceVersion=0"), A.to_owned(), format!("{A}?labelSelector=none")] {
        let listed = names(&client.json(&path).await).len();
        assert_eq!(listed, if path.contains("none") { 0 } else { 100 }, "{path}");
        remain_after(&through, &client, &path, &["v1/configmaps in a"]).await;
    }
    let mut watch = client.watch("/api/v1/namespaces/b/configmaps?watch=1&resourceVersion=0").await;
    assert_eq!(watch.next_event().await["type"], "ADDED");
    remain(&through, &["v1/configmaps in a", "v1/configmaps in b"]).await;
    eventually("two are followed", || server.counts().open_watches("configmaps") == 2).await;
    // These hold more than half of all; so whoever comes next has the rest read as well.
    client.json("/api/v1/namespaces/c/configmaps?resourceVersion=0").await;
    assert!(informers(&through).contains(&"v1/configmaps".to_owned()), "{:?}", informers(&through));
    server.create(config_map("b", "new")).unwrap();
    while watch.next_event().await["object"]["metadata"]["name"] != "new" {}
}

/// One namespace after the other must not take all the places that informers have.
#[tokio::test(flavor = "multi_thread")]
async fn informers_of_single_namespaces_leave_half_of_the_places() {
    let object = |n: usize| config_map(&format!("n{}", n % 10), &format!("object-{n:03}"));
    let (_server, through, client) = Through::simulated((0..300).map(object), "limits: { maxInformers: 4 }\n").await;
    through.ready().await;
    let expected = ["v1/configmaps in n0", "v1/configmaps in n1"];
    for namespace in 0..4 {
        let path = format!("/api/v1/namespaces/n{namespace}/configmaps?resourceVersion=0");
        assert_eq!(names(&client.json(&path).await).len(), 30);
        remain_after(&through, &client, &path, &expected[..(namespace + 1).min(2)]).await;
    }
    client.json("/api/v1/pods?resourceVersion=0").await;
    assert!(informers(&through).contains(&"v1/pods".to_owned()), "{:?}", informers(&through));
}

/// A client may make namespaces up. While all objects are cached, a table of none of them has soon cost as much as its informer.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_single_namespaces_leave_half_of_the_places() {
    let object = |n: usize| config_map("a", &format!("object-{n:03}"));
    let (_server, through, client) = Through::simulated((0..300).map(object), "limits: { maxInformers: 8 }\n").await;
    through.ready().await;
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let tables = client.accepting("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let of_parts = || informers(&through).iter().filter(|informer| informer.contains(" in made-up-")).count();
    for namespace in 0..20 {
        for _ in 0..3 {
            tables.json(&format!("/api/v1/namespaces/made-up-{namespace}/configmaps?resourceVersion=0")).await;
        }
    }
    assert_eq!(of_parts(), 4, "{:?}", informers(&through));
    client.json("/api/v1/pods?resourceVersion=0").await;
    assert!(informers(&through).contains(&"v1/pods".to_owned()), "{:?}", informers(&through));
}

/// Its readers know its revisions. The informer of all namespaces began later.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_namespace_stay_with_its_informer() {
    let (_server, through, client) = large().await;
    const A: &str = "/api/v1/namespaces/a/configmaps";
    client.json(&format!("{A}?resourceVersion=0")).await;
    let mut everything = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    everything.next_event().await;
    assert_eq!(informers(&through), ["v1/configmaps", "v1/configmaps in a"]);
    let (factory, gvr) = (&through.daemon.factory, Gvr::new("", "v1", "configmaps"));
    let resource = factory.resource(&gvr).await.unwrap().unwrap();
    let covering = |namespace: &str| {
        let predicate = Predicate::scoped(Scope { namespace: Some(namespace.into()), name: None });
        let (predicate, encoding, read) = (&predicate, Encoding::Json, Use::default());
        match factory.covering(Sought { resource: &resource, predicate, encoding, read }) {
            Ok(informer) => informer.key().to_string(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!([covering("a"), covering("b")], ["v1/configmaps in a", "v1/configmaps"]);
}

/// What cannot be forwarded is worth an informer at once, however large, and that is foretold.
#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_forwarded_starts_an_informer() {
    let (_server, through, client) = large().await;
    let path = format!("{CONFIG_MAPS}?resourceVersion=0&labelSelector=none");
    client.json(&path).await;
    remain(&through, &[]).await;
    let request = ReadRequest {
        gvr: Gvr::new("", "v1", "configmaps"),
        namespace: None,
        name: None,
        options: ListOptions { label_selector: "none".into(), resource_version: "0".into(), ..ListOptions::default() },
        format: Format::json(Shape::Full),
        legacy_watch: false,
        own_credentials: false,
        gzip: false,
        local: true,
        stale: false,
        timeout: None,
    };
    let reads = &through.daemon.reads;
    let forwarded = reads.explain(&ReadRequest { local: false, ..request.clone() }, meta::Verb::List).await.fate;
    assert!(matches!(forwarded, Fate::Forwarded(_)), "{forwarded:?}");
    assert_eq!(reads.explain(&request, meta::Verb::List).await.fate, Fate::Waits(Wait::Start));
    assert!(informers(&through).is_empty(), "nothing is started for a forecast");
    assert!(matches!(reads.list(&request).await, Outcome::Serve(_)));
    assert_eq!(informers(&through), ["v1/configmaps"]);
}
