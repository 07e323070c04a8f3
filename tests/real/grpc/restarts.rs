//! A daemon that is started anew, and clients that come back with the tokens of the one before: what happened meanwhile is
//! told from where they were, as long as the apiserver knows it.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use informerd::grpc::pb::v1;
use informerd::lifecycle;
use informerd_sim::{Effect, Fault, Server, Verb};
use serde_json::json;

use super::fixtures::{
    Client, Frame, Frames, all, client, config_map, filtered, labelled, labels, resume, said, started, watch_of,
};
use crate::support::{Through, eventually};

/// What goes wrong.
type Break = fn(&Server);

fn app(name: &str, app: &str) -> serde_json::Value {
    labelled("a", name, &json!({ "app": app }))
}

/// A daemon whose cache begins with what there is now, and a watch that has come there.
async fn begun(server: &Server, yaml: &str, selection: &v1::Selection) -> (Through, Client, Frames) {
    let through = Through::before(server, yaml).await;
    let mut client = client(&through).await;
    let frames = Frames::begun(&mut client, watch_of(selection.clone())).await;
    (through, client, frames)
}

/// The token of such a watch, whose daemon has ended.
async fn token(server: &Server, yaml: &str, selection: &v1::Selection) -> Vec<u8> {
    let (before, _, frames) = begun(server, yaml, selection).await;
    let token = frames.token.clone();
    drop(frames);
    before.stop(Duration::from_secs(5)).await;
    token
}

/// What a resumed watch tells before it is quiet: up to an event that is made now.
async fn missed(server: &Server, client: &mut Client, selection: &v1::Selection, token: &[u8]) -> Vec<v1::Event> {
    let mut frames = Frames::resumed(client, selection.clone(), token).await;
    let last = server.update(labelled("a", "last", &json!({"app": "x", "n": server.revision().to_string()}))).unwrap();
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &v1::Event| event.key.as_ref().unwrap().resource_version != last.to_string())
    {
        events.extend(frames.events(1).await);
    }
    events.pop();
    events
}

fn backfills(through: &Through) -> (u64, u64) {
    let informers = through.daemon.factory.informers();
    informers
        .iter()
        .map(|informer| informer.cache().stats())
        .fold((0, 0), |(tried, failed), stats| (tried + stats.backfills_total, failed + stats.backfills_failed_total))
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_each_from_its_own_revision_share_it() {
    const CLIENTS: usize = 60;
    let server = Server::builder().object(config_map("a", "one")).object(app("last", "x")).start().await.unwrap();
    let (before, _, mut frames) = begun(&server, "", &all("configmaps")).await;
    let mut points = vec![(server.revision(), frames.token.clone())];
    let mut written = Vec::new();
    for n in 1..CLIENTS {
        let object = labelled("a", &format!("n{}", n % 7), &json!({"n": n.to_string()}));
        let (kind, rv) = match server.create(object.clone()) {
            Ok(rv) => ("ADDED", rv),
            Err(_) => ("MODIFIED", server.update(object).unwrap()),
        };
        written.push((rv, format!("{kind} a/n{}@{rv}", n % 7)));
        frames.events(1).await;
        points.push((rv, frames.token.clone()));
    }
    drop(frames);
    before.stop(Duration::from_secs(5)).await;
    let rv = server.delete("configmaps", "a", "n3").unwrap();
    written.push((rv, format!("DELETED a/n3@{rv}")));

    let (through, client, _) = begun(&server, "", &all("configmaps")).await;
    let asked = |verb| server.counts().requests(verb, "configmaps");
    let before = (asked(Verb::Watch), asked(Verb::List) + asked(Verb::Probe));
    let mut coming = Vec::new();
    for (from, token) in points {
        let mut client = client.clone();
        coming.push(lifecycle::spawn("client", async move {
            (from, Frames::resumed(&mut client, all("configmaps"), &token).await)
        }));
    }
    for coming in coming {
        let (from, mut frames) = coming.await.unwrap();
        let wanted: Vec<_> = written.iter().filter(|(rv, _)| *rv > from).map(|(_, line)| line.clone()).collect();
        assert_eq!(said(&frames.events(wanted.len()).await), wanted, "after {from}");
    }
    let (tried, failed) = backfills(&through);
    assert!(tried <= CLIENTS as u64 / 6 && failed == 0, "{tried} attempts, {failed} failed");
    // Each is a watch, begun anew where its bookmark is late, and at most the seven objects one by one.
    let asked = (asked(Verb::Watch) - before.0, asked(Verb::List) + asked(Verb::Probe) - before.1);
    assert!(asked.0 <= 4 * tried && asked.1 <= 7 * tried, "{asked:?} for {tried}");
}

/// More objects have changed than are asked for one by one.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_where_all_has_changed_is_listed() {
    let mut builder = Server::builder().object(app("last", "x"));
    for n in 0..700 {
        builder = builder.object(app(&format!("n{n}"), "x"));
    }
    let server = builder.start().await.unwrap();
    let selection = filtered("configmaps", vec![labels("app=x")]);
    let token = token(&server, "", &selection).await;
    let mut wanted = Vec::new();
    for n in 0..700 {
        let rv = server.update(app(&format!("n{n}"), "y")).unwrap();
        wanted.push(format!("DELETED a/n{n}@{rv}"));
    }
    let (through, mut client, _) = begun(&server, "", &all("configmaps")).await;
    let lists = || server.counts().requests(Verb::List, "configmaps");
    let before = lists();
    assert_eq!(said(&missed(&server, &mut client, &selection, &token).await), wanted);
    assert_eq!(backfills(&through), (1, 0));
    assert!((1..=2).contains(&(lists() - before)), "two pages");
}

/// A daemon that holds a part of the objects is told of that part: what came and went by its edge.
#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_part_has_its_own_edges() {
    let pinned = "resources: [{resource: configmaps, labelSelector: app=x, pin: true}]\n";
    let server = Server::builder().object(app("last", "x")).object(app("one", "x")).object(app("two", "y"));
    let server = server.start().await.unwrap();
    let selection = filtered("configmaps", vec![labels("app=x")]);
    let token = token(&server, pinned, &selection).await;
    let left = server.update(app("one", "y")).unwrap();
    let entered = server.update(app("two", "x")).unwrap();
    server.update(labelled("a", "one", &json!({"app": "y", "n": "1"}))).unwrap();
    // Other changes of the store: there is no bookmark at the revision of the last change that a watch begins with.
    server
        .create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "a", "name": "other"}}))
        .unwrap();
    let (through, mut client, _) = begun(&server, pinned, &selection).await;
    let wanted = [format!("DELETED a/one@{left}"), format!("ADDED a/two@{entered}")];
    assert_eq!(said(&missed(&server, &mut client, &selection, &token).await), wanted);
    let informers = through.daemon.factory.informers();
    let selectors: BTreeSet<_> =
        informers.iter().map(|informer| informer.key().scope.label_selector.to_string()).collect();
    assert_eq!(selectors, BTreeSet::from(["app=x".to_owned()]), "no informer of more was started");
    assert_eq!(backfills(&through), (1, 0));
}

/// A restarted server has forgotten, answers with errors, or hangs: then everybody begins anew, in bounded time.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_told_is_a_reset() {
    let broken: [(&str, Break); 4] = [
        ("compacted", |server| server.faults().compact()),
        ("no states of old", |server| {
            server.faults().add(Fault::always(Effect::Answer { code: 500, retry_after: None }).verb(Verb::List));
        }),
        ("a watch that ends", |server| {
            server.faults().add(Fault::times(1, Effect::Garbage).on("configmaps"));
        }),
        ("nothing comes", |server| {
            let late = Effect::Delay(Duration::from_secs(120));
            server.faults().add(Fault::always(late).verb(Verb::Watch).on("configmaps"));
        }),
    ];
    // Each has a server of its own, and some wait for seconds.
    join_all(broken.map(|(what, broke)| async move {
        let server = Server::builder().object(app("last", "x")).object(app("one", "x")).start().await.unwrap();
        let token = token(&server, "", &all("configmaps")).await;
        // While nothing has happened, the new window begins where the old one ended.
        let (quiet, mut client, _) = begun(&server, "", &all("configmaps")).await;
        assert!(missed(&server, &mut client, &all("configmaps"), &token).await.is_empty(), "{what}");
        assert_eq!(backfills(&quiet), (0, 0), "{what}");
        quiet.stop(Duration::from_secs(5)).await;
        for n in 0..5 {
            server.update(labelled("a", "one", &json!({"n": n.to_string()}))).unwrap();
        }
        server.delete("configmaps", "a", "last").unwrap();
        let (through, mut client, _) = begun(&server, "", &all("configmaps")).await;
        broke(&server);
        let mut others = client.clone();
        let other = lifecycle::spawn("other", {
            let token = token.clone();
            async move { started(&Frames::open(&mut others, resume(all("configmaps"), &token)).await.tell().await) }
        });
        let mut frames = Frames::open(&mut client, resume(all("configmaps"), &token)).await;
        assert!(!started(&frames.tell().await), "{what}");
        let Frame::Reset(reset) = frames.tell().await else { panic!("no reset: {what}") };
        assert_eq!(reset.reason(), v1::reset::Reason::Expired, "{what}");
        let (events, _) = frames.snapshot().await;
        let state = server.state("configmaps");
        let wanted: Vec<_> = state.iter().map(|(key, rv)| format!("ADDED {key}@{rv}")).collect();
        assert_eq!(said(&events), wanted, "{what}");
        assert!(!other.await.unwrap(), "{what}");
        let (tried, failed) = backfills(&through);
        assert!(tried == failed && (1..=2).contains(&tried), "{what}: {tried}, {failed}");
        // And nobody asks again at once for what was refused. With what it holds, a client gets the difference.
        let known = [("x".to_owned(), "1".to_owned())].into();
        let request = v1::WatchRequest { known, ..resume(all("configmaps"), &token) };
        let mut third = Frames::open(&mut client, request).await;
        assert!(!started(&third.tell().await), "{what}");
        let (events, end) = third.snapshot().await;
        assert_eq!((said(&events), end.gone_uids), (wanted, vec!["x".to_owned()]), "{what}");
        assert_eq!(backfills(&through).0, tried, "{what}");
    }))
    .await;
}

/// A client that goes away while it waits leaves the others what they wait for.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_gives_up_takes_nothing_from_others() {
    let server = Server::builder().object(app("last", "x")).object(app("one", "x")).start().await.unwrap();
    let token = token(&server, "", &all("configmaps")).await;
    let rv = server.update(app("one", "y")).unwrap();
    let (through, mut client, _) = begun(&server, "", &all("configmaps")).await;
    let late = Effect::Delay(Duration::from_secs(1));
    let delay = server.faults().add(Fault::times(1, late).verb(Verb::Watch).on("configmaps"));
    let mut first = super::fixtures::client(&through).await;
    let request = resume(all("configmaps"), &token);
    let gone = lifecycle::spawn("gone", async move { first.watch(request).await.map(drop) });
    eventually("the first asks", || server.faults().hits(delay) > 0).await;
    gone.abort();
    assert!(gone.await.is_err(), "it has not been answered");
    let told = missed(&server, &mut client, &all("configmaps"), &token).await;
    assert_eq!(said(&told), [format!("MODIFIED a/one@{rv}")]);
}
