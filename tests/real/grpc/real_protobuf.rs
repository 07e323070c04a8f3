//! Differences, conflation and many watches on one stream in both encodings, against one model: what the kube-apiserver
//! itself tells by HTTP.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use http::Method;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::sync_request::Action;
use informerd::lifecycle;

use super::fixtures::{
    Frame, Frames, client, consistent, filtered, kind_of, labels, list, namespace, newest, started, watch_from,
    watch_of,
};
use super::real::{ENCODINGS, begun, churn, object, world};
use super::syncs::{PLENTY, Sync};
use super::told::{accept, by_http, identity, is_last, line_of, object_of};
use crate::support::eventually;
use crate::support::history::State;
use crate::support::informer::Seen;
use crate::world::{World, admin};

/// What a consumer holds, and all that came and went.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replica {
    /// Revisions by key.
    objects: State,
    created: Vec<(String, String)>,
    deleted: Vec<(String, String)>,
}

/// One of the watches of a stream.
struct Watched {
    path: &'static str,
    encoding: v1::Encoding,
    conflate: bool,
    told: Vec<String>,
}

impl Replica {
    /// The fold of what a watch tells, which must be possible.
    fn of(told: &[String], encoding: v1::Encoding) -> Self {
        let (mut replica, mut seen) = (Self::default(), Seen::default());
        for line in told {
            let kind = line.split(' ').next().unwrap();
            let (at, uid) = identity(encoding, &object_of(line));
            let (key, rv) = at.rsplit_once('@').unwrap();
            let rv = rv.parse().unwrap();
            assert!(seen.state.get(key).is_none_or(|held| *held < rv), "{kind} {at} after {seen:?}");
            seen.apply(kind, key, uid.clone(), rv);
            match kind {
                "ADDED" => replica.created.push((key.to_owned(), uid)),
                "DELETED" => replica.deleted.push((key.to_owned(), uid)),
                _ => assert_eq!(kind, "MODIFIED", "{at}"),
            }
        }
        assert!(seen.complaints.is_empty(), "{:#?}", seen.complaints);
        replica.objects = seen.state;
        // Among keys there is no order.
        replica.created.sort();
        replica.deleted.sort();
        replica
    }
}

/// Half of the watches are granted nothing until all is over, and merge what they may not send.
#[tokio::test(flavor = "multi_thread")]
async fn many_watches_on_one_stream_and_what_is_merged() {
    let World { cluster, daemon, direct, .. } = world().await;
    let mut grpc = client(&daemon).await;
    let from = begun(&mut grpc).await;
    let mut sync = Sync::open(&mut grpc).await;
    let (mut watched, mut theirs) = (BTreeMap::new(), Vec::new());
    for encoding in ENCODINGS {
        for (path, filters) in [
            ("/api/v1/configmaps?", vec![]),
            ("/api/v1/configmaps?labelSelector=app%3Dx&", vec![labels("app=x")]),
            ("/api/v1/configmaps?labelSelector=app+in+(x,y)&", vec![labels("app=x"), labels("app=y")]),
        ] {
            let target = format!("{path}watch=1&resourceVersion={from}");
            let by_apiserver = direct.watch_as(&target, &[("accept", accept(encoding))]).await;
            theirs.push((path, encoding, lifecycle::spawn("by-http", by_http(by_apiserver, encoding))));
            let selection = v1::Selection { encoding: encoding.into(), ..filtered("configmaps", filters) };
            for conflate in [false, true] {
                let watch = v1::WatchRequest { conflate, ..watch_from(selection.clone(), from) };
                let credit = Some(if conflate { v1::Credit::default() } else { PLENTY });
                let watch_id = watched.len() as u64;
                sync.add(watch_id, watch, credit).await;
                watched.insert(watch_id, Watched { path, encoding, conflate, told: Vec::new() });
            }
        }
    }
    let writer = admin(&cluster);
    let writes = lifecycle::spawn("writes", async move { churn(&writer).await });
    for conflated in [false, true] {
        if conflated {
            for (watch_id, _) in watched.iter().filter(|(_, watched)| watched.conflate) {
                sync.ask(*watch_id, Action::Credit(PLENTY)).await;
            }
        }
        let is_over =
            |watched: &Watched| watched.conflate != conflated || watched.told.last().is_some_and(|l| is_last(l));
        while !watched.values().all(is_over) {
            let (watch_id, frame) = sync.next().await.expect("the stream is open");
            let one = watched.get_mut(&watch_id).unwrap();
            assert_eq!(one.conflate, conflated, "who was granted nothing says nothing");
            match frame {
                Frame::Started(start) => assert!(start.resumed && start.encoding() == one.encoding),
                Frame::Events(batch) => one.told.extend(batch.events.iter().map(|event| line_of(event, one.encoding))),
                other => panic!("{other:?}"),
            }
        }
        // What is merged waits for the last event, too, before it is granted anything.
        if !conflated {
            let waits = || daemon.daemon.grpc.pending.get() >= 3 * ENCODINGS.len() as i64;
            eventually("what is merged waits", waits).await;
        }
    }
    writes.await.unwrap();
    for (path, encoding, theirs) in theirs {
        let theirs = theirs.await.unwrap();
        for one in watched.values().filter(|one| (one.path, one.encoding) == (path, encoding)) {
            if one.conflate {
                assert_eq!(Replica::of(&one.told, encoding), Replica::of(&theirs, encoding), "{path} {encoding:?}");
                assert!(one.told.len() < theirs.len(), "{path} {encoding:?}: nothing was merged");
            } else {
                assert_eq!(one.told, theirs, "{path} {encoding:?}");
            }
        }
    }
}

/// What a client holds from an answer in one encoding serves for a difference in either.
#[tokio::test(flavor = "multi_thread")]
async fn differences_to_what_is_known() {
    let World { cluster: _cluster, daemon, direct, .. } = world().await;
    let collection = "/api/v1/namespaces/a/configmaps";
    let of = |encoding: v1::Encoding| v1::Selection {
        encoding: encoding.into(),
        ..filtered("configmaps", vec![namespace("a")])
    };
    // By name: uid and revision.
    let state = || async {
        let list = direct.get(collection).await.json();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let item = |item: &serde_json::Value| {
            let metadata = &item["metadata"];
            (text(&metadata["name"]), (text(&metadata["uid"]), text(&metadata["resourceVersion"])))
        };
        list["items"].as_array().unwrap().iter().map(item).collect::<BTreeMap<_, _>>()
    };
    let mut grpc = client(&daemon).await;
    for (round, (held_in, asked_in)) in
        ENCODINGS.iter().flat_map(|held| ENCODINGS.map(|asked| (*held, asked))).enumerate()
    {
        let round = round as u64;
        for n in [0, 2, 4, 6] {
            let value = object(n, round);
            let one = format!("{collection}/n{n}");
            if direct.get(&one).await.status == 404 {
                direct.write(Method::POST, collection, &value).await;
            }
        }
        let before = state().await;
        let held = list(&mut grpc, newest(of(held_in))).await.1;
        let known: HashMap<_, _> =
            held.iter().map(|object| object.key.clone().unwrap()).map(|key| (key.uid, key.resource_version)).collect();
        assert_eq!(known, before.values().cloned().collect());

        // One changes, one goes, one goes and comes back as another, one is new, and one stays.
        let (changed, new) = (object(0, round + 100), object(8 + 2 * round, round));
        for (method, path, body) in [
            (Method::PUT, format!("{collection}/n0"), changed),
            (Method::DELETE, format!("{collection}/n2"), serde_json::Value::Null),
            (Method::DELETE, format!("{collection}/n4"), serde_json::Value::Null),
            (Method::POST, collection.to_owned(), object(4, round)),
            (Method::POST, collection.to_owned(), new),
        ] {
            direct.write(method, &path, &body).await;
        }
        let after = state().await;
        let start = Some(v1::watch_request::Start::Snapshot(consistent()));
        let mut frames = Frames::open(&mut grpc, v1::WatchRequest { start, known, ..watch_of(of(asked_in)) }).await;
        assert!(!started(&frames.tell().await));
        let (events, end) = frames.snapshot().await;
        let wanted: BTreeSet<_> = after
            .iter()
            .filter(|(name, now)| before.get(*name) != Some(now))
            .map(|(name, (uid, rv))| {
                let kind = if before.values().any(|held| held.0 == *uid) { "MODIFIED" } else { "ADDED" };
                format!("{kind} a/{name}@{rv} {uid}")
            })
            .collect();
        let told: BTreeSet<_> = events
            .iter()
            .map(|event| {
                let (at, uid) = identity(asked_in, &event.object);
                format!("{} {at} {uid}", kind_of(event))
            })
            .collect();
        assert_eq!((told, events.len()), (wanted, 3), "{held_in:?}, then {asked_in:?}");
        let gone: BTreeSet<_> =
            before.values().filter(|held| !after.values().any(|now| now.0 == held.0)).map(|held| &held.0).collect();
        assert_eq!((end.gone_uids.iter().collect(), gone.len()), (gone, 2), "{held_in:?}, then {asked_in:?}");
        assert_eq!(end.count, after.len() as u64);
    }
}
