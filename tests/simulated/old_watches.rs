//! Watches that come to a daemon that was just started, from revisions before its own beginning.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::future::join_all;
use informerd_sim::{Effect, Fault, Server, Verb};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::{Through, eventually};
use crate::{CONFIG_MAPS, config_map};

fn labelled(name: &str, app: &str, n: u64) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({"app": app, "n": n.to_string()});
    object
}

/// A server on which much has happened, and a daemon whose informer has not seen it. Something follows, so nobody waits for a
/// bookmark. Returns the revisions from which clients come back, the oldest one first.
async fn restarted() -> (Server, Through, Client, Vec<u64>) {
    let objects = [labelled("one", "x", 0), labelled("two", "y", 0)];
    let server = objects.into_iter().fold(Server::builder(), informerd_sim::Builder::object).start().await.unwrap();
    let mut from = vec![server.revision()];
    for n in 0..19 {
        // Objects come and go, and two that were there come to what is selected and leave it.
        let app = ["x", "y"][usize::try_from(n / 4 % 2).unwrap()];
        let happened = match n % 4 {
            0 => server.create(labelled(&format!("new-{n}"), "x", n)),
            1 => server.update(labelled("one", app, n)),
            2 => server.update(labelled("two", app, n)),
            _ => server.delete("configmaps", "a", &format!("new-{}", n - 3)),
        };
        from.push(happened.unwrap());
    }
    server.update(labelled("one", "y", 19)).unwrap();
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let last = server.create(labelled("last", "x", 0)).unwrap();
    let informer = through.daemon.factory.informers().remove(0);
    eventually("it follows", || informer.cache().resource_version().get() >= last).await;
    (server, through, client, from)
}

/// What a watch tells, up to the last event or its end.
async fn told(client: &Client, path: &str) -> Vec<Value> {
    let mut watch = client.watch(path).await;
    let mut events: Vec<Value> = Vec::new();
    while events.last().is_none_or(|event| event["object"]["metadata"]["name"] != "last") {
        let Some(event) = watch.next().await.unwrap() else { break };
        events.push(event);
    }
    events
}

/// Whether the apiserver has told nothing but that the revision is too old.
fn is_expired(events: &[Value]) -> bool {
    events.len() == 1 && events[0]["type"] == "ERROR" && events[0]["object"]["code"] == 410
}

fn attempts(through: &Through) -> (u64, u64) {
    let stats = through.daemon.factory.informers()[0].cache().stats();
    (stats.backfills_total, stats.backfills_failed_total)
}

/// Of every selection, and exactly as the apiserver tells it.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_come_back_share_one_question() {
    let (server, through, client, from) = restarted().await;
    let selections = [
        CONFIG_MAPS.to_owned() + "?",
        CONFIG_MAPS.to_owned() + "?labelSelector=app%3Dx&",
        "/api/v1/namespaces/a/configmaps?labelSelector=app%20in%20(x)&".to_owned(),
        CONFIG_MAPS.to_owned() + "?fieldSelector=metadata.name%21%3Done&",
    ];
    let coming = from.iter().zip(selections.iter().cycle());
    let paths: Vec<_> = coming.map(|(rv, of)| format!("{of}watch=1&resourceVersion={rv}")).collect();
    let direct = Client::new(&server.url());
    let wanted = join_all(paths.iter().map(|path| told(&direct, path))).await;
    let leaves = |event: &Value| event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "two";
    assert!(wanted.iter().flatten().any(leaves));

    let watches = || server.counts().requests(Verb::Watch, "configmaps");
    let before = watches();
    let late = Fault::times(1, Effect::Delay(Duration::from_secs(1))).verb(Verb::Watch).on("configmaps");
    let late = server.faults().add(late);
    // The others come while it is asked.
    let others = async {
        eventually("it is asked", || server.faults().hits(late) > 0).await;
        join_all(paths[1..].iter().map(|path| told(&client, path))).await
    };
    let (first, others) = tokio::join!(told(&client, &paths[0]), others);
    assert_eq!(first, wanted[0]);
    for (n, events) in others.iter().enumerate() {
        assert_eq!(events, &wanted[n + 1], "{}", paths[n + 1]);
    }
    assert_eq!((watches() - before, attempts(&through)), (1, (1, 0)), "{} watches", paths.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_apiserver_does_not_know_any_more_is_asked_once() {
    let (server, through, client, from) = restarted().await;
    server.faults().compact();
    let direct = Client::new(&server.url());
    for rv in &from[..3] {
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={rv}");
        let events = told(&client, &path).await;
        assert!(is_expired(&events), "{events:?}");
        assert_eq!(events, told(&direct, &path).await, "it is forwarded");
    }
    assert_eq!(attempts(&through), (1, 1));
}

/// Where the window cannot be filled.
#[tokio::test(flavor = "multi_thread")]
async fn some_are_forwarded_and_a_storm_of_them_is_not() {
    let (server, _through, client, from) = restarted().await;
    let fails = Effect::Answer { code: 500, retry_after: None };
    server.faults().add(Fault::always(fails).verb(Verb::List).on("configmaps"));
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", from[0]);
    let direct = told(&Client::new(&server.url()), &path).await;
    assert_eq!(direct.len(), from.len() + 1);
    let answers = join_all((0..200).map(|_| told(&client, &path))).await;
    let forwarded = answers.iter().filter(|events| **events == direct).count();
    let refused = answers.iter().filter(|events| is_expired(events)).count();
    assert_eq!(forwarded + refused, 200, "either way it is an answer of an apiserver");
    // A hundred at once, and one more in each six seconds that the storm takes.
    assert!((100..200).contains(&forwarded), "{forwarded} of a storm are forwarded");
}
