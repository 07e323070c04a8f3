//! What readers get while the apiserver does something wrong at a certain moment. `seeded` has the other faults.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use crate::support::client::{Client, rv};
use crate::support::informer::Informer;
use crate::support::{Through, eventually};
use crate::{CONFIG_MAPS, config_map};
use http::Method;
use informerd::meta::ResourceVersion;
use informerd_sim::{Effect, Fault, Server, Verb};
use serde_json::{Value, json};

/// A daemon whose informer has what there is, and somebody who follows it.
async fn followed(objects: impl IntoIterator<Item = Value>) -> (Server, Through, Client, Informer) {
    let (server, through, client) = Through::simulated(objects, "").await;
    let informer = Informer::start(client.clone(), CONFIG_MAPS, "");
    informer.reaches("synced", || server.state("configmaps")).await;
    (server, through, client, informer)
}

/// Every watch of a large collection is open and says nothing more, before a bookmark came.
#[tokio::test(flavor = "multi_thread")]
async fn where_no_watch_says_anything_lists_do() {
    let objects = (0..=5000).map(|n| config_map(&format!("cm-{n}")));
    let (server, through, client, informer) = followed(objects).await;
    let status = || through.daemon.factory.informers()[0].status();
    server.create(config_map("first")).unwrap();
    informer.reaches("it follows", || server.state("configmaps")).await;
    server.faults().add(Fault::always(Effect::Stall).on("configmaps"));
    // More than a comparison has room for.
    for n in 0..100 {
        server.create(config_map(&format!("missed-{n}"))).unwrap();
    }
    client.json(CONFIG_MAPS).await;
    informer.reaches("one forwarded list was enough", || server.state("configmaps")).await;
    eventually("it is counted", || status().silences >= 2 && status().relists >= 1).await;
}

/// What a client has written must come. Nobody reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_owes_an_object_is_opened_anew_and_then_listed() {
    let (server, through, client, informer) = followed([]).await;
    let status = || through.daemon.factory.informers()[0].status();
    client.write(Method::POST, "/api/v1/namespaces/a/configmaps", &config_map("heard")).await;
    informer.reaches("it follows", || server.state("configmaps")).await;
    server.faults().add(Fault::always(Effect::Stall).on("configmaps"));
    client.write(Method::POST, "/api/v1/namespaces/a/configmaps", &config_map("missed")).await;
    informer.reaches("it is listed", || server.state("configmaps")).await;
    // The list is counted after it was shown.
    eventually("it is counted", || status().relists > 0).await;
    assert_eq!((status().silences, status().relists), (2, 1));
}

/// A store that was set back does not have what it has shown before.
#[tokio::test(flavor = "multi_thread")]
async fn what_even_a_list_does_not_reach_is_not_owed() {
    let (_server, through, client) = Through::simulated([], "").await;
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let informer = through.daemon.factory.informers().remove(0);
    eventually("it follows", || informer.status().state == "follow").await;
    informer.must_deliver(ResourceVersion(u64::MAX));
    eventually("it is listed", || informer.status().relists == 1).await;
    assert_eq!(informer.status().silences, 2);
    // Who is shown it over and over has it looked for once more: those who are shown it meanwhile wait for the same.
    eventually("it is looked for once more", || {
        informer.status().silences == 4 || {
            informer.must_deliver(ResourceVersion(u64::MAX));
            false
        }
    })
    .await;
    eventually("it is listed once more", || informer.status().relists >= 2).await;
    // As long as it would take again. Each silence but the very first may cost a list.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let status = informer.status();
    assert_eq!(status.silences, 4);
    assert!(status.relists <= 3, "{status:?}");
}

/// A change of something else, and the revision of the list that is forwarded after it.
async fn forwarded(server: &Server, client: &Client, n: usize) -> u64 {
    let metadata = json!({"name": format!("other-{n}")});
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).unwrap();
    rv(&client.json(CONFIG_MAPS).await)
}

/// A forwarded list shows a revision that no event of a quiet type will ever reach. The cache is brought there all the
/// same, so that it can still answer when the apiserver is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_cache_follows_what_was_forwarded_and_outlives_the_apiserver() {
    let settings = "consistentReads: upstream\nwhileAway: serve\n";
    let (server, through, client) = Through::simulated([config_map("one")], settings).await;
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let mut shown = 0;
    // Nobody reads between them.
    for n in 0..2 {
        shown = forwarded(&server, &client, n).await;
        eventually("the cache is there", || {
            through.daemon.factory.informers().iter().all(|informer| informer.cache().resource_version().get() >= shown)
        })
        .await;
    }
    server.faults().add(Fault::always(Effect::Reset));
    server.faults().reset_connections();
    let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert!(rv(&list) >= shown);
}

/// A cache that nobody reads waits for the bookmarks of its watch, whatever is forwarded.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_asked_after_what_was_forwarded_where_nobody_reads_the_cache() {
    let settings = "consistentReads: upstream\nresources: [{resource: configmaps, pin: true}]\n";
    let (server, through, client) = Through::simulated([config_map("one")], settings).await;
    through.ready().await;
    let asked = || server.requests().iter().filter(|request| request.target.contains("configmaps")).count();
    let before = asked();
    for n in 0..3 {
        forwarded(&server, &client, n).await;
        // A proof would begin half a second later.
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(asked() - before, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsynced_cache_never_answers() {
    let server = Server::builder().object(config_map("one")).start().await.unwrap();
    server.faults().add(Fault::always(Effect::NoInitialEnd).on("configmaps").verb(Verb::Watch));
    for (then, code) in [("\"429\"", 429), ("forward", 200)] {
        // After the first list, which would be whole, it tries a watch-list.
        let failed = Effect::Answer { code: 500, retry_after: None };
        server.faults().add(Fault::once(failed).on("configmaps").verb(Verb::List));
        let through = Through::before(&server, &format!("notSynced: {{ wait: 300ms, then: {then} }}\n")).await;
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
