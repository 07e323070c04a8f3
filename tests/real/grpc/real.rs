//! Against the real kube-apiserver under churn: every watch by gRPC tells what the same watch by HTTP tells, byte for byte,
//! in both encodings. `programs::examples` and `programs::packages` have clients in other languages.

use http::Method;
use informerd::grpc::pb::v1;
use informerd::lifecycle;
use serde_json::{Value, json};
use tonic::Code;

use super::fixtures::{
    Client, Frame, Frames, client, consistent, details, filtered, get_of, index, keys, labelled, labels, list, list_of,
    namespace, newest, resource, watch_of,
};
use super::told::{LAST, accept, by_grpc, by_http, message, resumes, state_by_grpc, state_by_http};
use crate::cluster::Cluster;
use crate::crontabs::{crontab, definition};
use crate::support::client::Client as Http;
use crate::support::{Through, until};
use crate::world::World;

const OBJECTS: usize = 12;
const STEPS: u64 = 400;
pub(super) const ENCODINGS: [v1::Encoding; 2] = [v1::Encoding::Json, v1::Encoding::KubeProtobuf];

pub(super) async fn world() -> World {
    let cluster = Cluster::start().await;
    for namespace in ["a", "b"] {
        cluster.namespace(namespace).await;
    }
    World::before(cluster, "").await
}

/// A revision that the informers of both encodings know.
pub(super) async fn begun(grpc: &mut Client) -> u64 {
    let mut from = 0;
    for encoding in ENCODINGS {
        let selection = v1::Selection { encoding: encoding.into(), ..filtered("configmaps", vec![]) };
        from = list(grpc, newest(selection)).await.0.resource_version.parse().unwrap();
    }
    from
}

pub(super) fn object(n: u64, step: u64) -> Value {
    let namespace = if n.is_multiple_of(2) { "a" } else { "b" };
    let app = ["x", "y", "z"][usize::try_from(step / 3 % 3).unwrap()];
    let mut object = labelled(namespace, &format!("n{n}"), &json!({"app": app}));
    object["data"] = json!({"step": step.to_string(), "text": "<é> & \u{2028}"});
    object
}

/// Creates, changes, relabels, deletes and creates anew.
pub(super) async fn churn(direct: &Http) {
    churn_while(direct, |step| step < STEPS).await;
}

/// The same, as long as it is wanted, and then the last write.
pub(crate) async fn churn_while(direct: &Http, wanted: impl Fn(u64) -> bool) {
    let mut there = [false; OBJECTS];
    for step in (0..).take_while(|step| wanted(*step)) {
        let n = (step * 7 + step / 11) % OBJECTS as u64;
        let value = object(n, step);
        let path = format!("/api/v1/namespaces/{}/configmaps", value["metadata"]["namespace"].as_str().unwrap());
        let held = &mut there[usize::try_from(n).unwrap()];
        let one = format!("{path}/n{n}");
        match (*held, step % 5) {
            (true, 0) => direct.write(Method::DELETE, &one, &Value::Null).await,
            (true, _) => direct.write(Method::PUT, &one, &value).await,
            (false, _) => direct.write(Method::POST, &path, &value).await,
        };
        *held = !(*held && step % 5 == 0);
    }
    let last = json!({"metadata": {"name": LAST, "namespace": "a", "labels": {"app": "x"}}});
    direct.write(Method::POST, "/api/v1/namespaces/a/configmaps", &last).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tells_what_http_tells_under_churn() {
    let World { cluster, daemon, direct, through } = world().await;
    let mut grpc = client(&daemon).await;
    let from = begun(&mut grpc).await;
    let label = |value: &str| v1::Filter {
        index: vec![v1::IndexTerm {
            key: Some(v1::index_term::Key::Label("app".into())),
            values: vec![value.into(), "w".into()],
        }],
        ..Default::default()
    };
    // A path and query, and the same as filters, the union as a set of values.
    let selections = [
        ("/api/v1/configmaps?", vec![]),
        ("/api/v1/configmaps?labelSelector=app%3Dx&", vec![labels("app=x")]),
        ("/api/v1/namespaces/a/configmaps?", vec![namespace("a")]),
        ("/api/v1/configmaps?labelSelector=app+in+(x,w)&", vec![label("x")]),
        ("/api/v1/configmaps?labelSelector=app+in+(x,y)&", vec![labels("app=y"), labels("app=x"), labels("app=x")]),
        (
            "/api/v1/configmaps?fieldSelector=metadata.namespace%3Da&",
            vec![index(v1::Index::Namespace, &["a"]), v1::Filter { names: vec![LAST.into()], ..Default::default() }],
        ),
    ];
    let mut pairs = Vec::new();
    for encoding in ENCODINGS {
        for (target, filters) in selections.clone() {
            let path = format!("{target}watch=1&resourceVersion={from}&allowWatchBookmarks=true");
            let accept = [("accept", accept(encoding))];
            let (ours, theirs) = (through.watch_as(&path, &accept).await, direct.watch_as(&path, &accept).await);
            let selection = v1::Selection { encoding: encoding.into(), ..filtered("configmaps", filters) };
            let whole = lifecycle::spawn("by-grpc", by_grpc(grpc.clone(), selection.clone(), from, usize::MAX));
            pairs.push((target, encoding, ours, theirs, whole, selection));
        }
    }
    let writes = churn(&direct);
    let told = async {
        let mut all = Vec::new();
        for (target, encoding, ours, theirs, whole, selection) in pairs {
            let (ours, theirs, whole) = tokio::join!(by_http(ours, encoding), by_http(theirs, encoding), whole);
            all.push((target, encoding, ours, theirs, whole.unwrap(), selection));
        }
        all
    };
    let ((), told) = tokio::join!(writes, told);
    // The past is fetched within a bound on time, which a busy machine may not keep to.
    let mut attempts = 0;
    let late = loop {
        let late = Through::of(cluster.admin(), "").await;
        let mut resumed = true;
        for (.., selection) in &told {
            resumed = resumed && resumes(client(&late).await, selection.clone(), from).await;
        }
        attempts += 1;
        if resumed {
            break late;
        }
        assert!(attempts < 5, "the past was not fetched in {attempts} attempts");
    };
    for (target, encoding, ours, theirs, whole, selection) in told {
        assert!(whole.len() > 50, "{target}: {}", whole.len());
        assert_eq!(ours, theirs, "{target} {encoding:?}");
        assert_eq!(whole, theirs, "{target} {encoding:?}");
        // Again, over many reconnects.
        assert_eq!(by_grpc(grpc.clone(), selection.clone(), from, 7).await, theirs, "{target} {encoding:?}");
        // And by a daemon that was not there, from what the apiserver still knows.
        let missed = by_grpc(client(&late).await, selection.clone(), from, usize::MAX).await;
        assert_eq!(missed, theirs, "{target} {encoding:?}");
        // And the state it all came to.
        let items = state_by_grpc(&mut grpc, selection).await;
        assert_eq!(items, state_by_http(&direct, target.trim_end_matches(['?', '&']), encoding).await, "{target}");
    }
    for informer in
        late.daemon.factory.informers().iter().filter(|informer| &*informer.key().gvr.resource == "configmaps")
    {
        let stats = informer.cache().stats();
        assert_eq!((stats.backfills_total, stats.backfills_failed_total), (1, 0), "{informer:?}");
        assert!(stats.backfilled_events_total > STEPS, "{informer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encodings_and_shapes_are_the_apiservers() {
    let World { cluster, daemon, direct, .. } = world().await;
    // A type of which the apiserver has no messages.
    cluster.apply(&definition("{x: {type: integer}}")).await;
    let crontabs = "/apis/stable.example.com/v1/namespaces/a/crontabs";
    until("the definition is served", async || direct.get(crontabs).await.status == 200).await;
    cluster.apply(&crontab("a", "one", "{x: 1}")).await;
    let path = "/api/v1/namespaces/a/configmaps";
    let mut value = object(0, 1);
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    value["metadata"]["annotations"] = json!({applied: "{}", "kept": "yes"});
    direct.write(Method::POST, path, &value).await;
    let mut grpc = client(&daemon).await;
    let get = |of: v1::Resource, name: &str, shape: v1::Shape, encoding: v1::Encoding| v1::GetRequest {
        consistency: Some(consistent()),
        shape: shape.into(),
        encoding: encoding.into(),
        ..get_of(of, "a", name)
    };
    let config_map = || get(resource("configmaps"), "n0", v1::Shape::Full, v1::Encoding::KubeProtobuf);
    let cron_tabs =
        || v1::Resource { group: "stable.example.com".into(), version: "v1".into(), resource: "crontabs".into() };

    // Nothing is held yet, so any is JSON; what is held in one encoding is read from there.
    let any = v1::GetRequest { encoding: v1::Encoding::Any.into(), ..config_map() };
    let one = grpc.get(config_map()).await.unwrap().into_inner();
    assert_eq!(one.encoding(), v1::Encoding::KubeProtobuf);
    let accept = |accept| [("accept", accept)];
    let full = accept("application/vnd.kubernetes.protobuf");
    let theirs = direct.request(Method::GET, &format!("{path}/n0"), &full, "").await.body;
    assert_eq!(one.object.unwrap().object, theirs);
    assert_eq!(grpc.get(any.clone()).await.unwrap().into_inner().encoding(), v1::Encoding::KubeProtobuf);
    let masked = v1::GetRequest {
        shape: v1::Shape::Masked.into(),
        mask: Some(prost_types::FieldMask { paths: vec!["data.step".into()] }),
        ..any.clone()
    };
    let kept = grpc.get(masked.clone()).await.unwrap().into_inner();
    assert_eq!(kept.encoding(), v1::Encoding::Json);
    let kept = kept.object.unwrap();
    let value: Value = serde_json::from_slice(&kept.object).unwrap();
    let (name, labels) = (&value["metadata"]["name"], value["metadata"].get("labels"));
    assert_eq!((kept.partial, &value["data"], name, labels), (true, &json!({"step": "1"}), &json!("n0"), None));
    let masked = v1::GetRequest { encoding: v1::Encoding::KubeProtobuf.into(), ..masked };
    assert_eq!(grpc.get(masked).await.unwrap_err().code(), Code::InvalidArgument);
    // Now both are held.
    assert_eq!(grpc.get(any).await.unwrap().into_inner().encoding(), v1::Encoding::Json);

    // Metadata alone, also of types that have no other message.
    let partial = accept("application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    for (of, name, path) in
        [(resource("configmaps"), "n0", format!("{path}/n0")), (cron_tabs(), "one", format!("{crontabs}/one"))]
    {
        let asked = get(of, name, v1::Shape::MetadataOnly, v1::Encoding::KubeProtobuf);
        let ours = grpc.get(asked).await.unwrap().into_inner();
        assert_eq!(ours.encoding(), v1::Encoding::KubeProtobuf);
        let ours = ours.object.unwrap();
        assert!(ours.partial);
        assert_eq!(ours.object, direct.request(Method::GET, &path, &partial, "").await.body, "{path}");
    }

    // Without parts of the metadata.
    let dropped =
        v1::GetRequest { drop: vec![v1::Drop::ManagedFields.into(), v1::Drop::LastApplied.into()], ..config_map() };
    let dropped = grpc.get(dropped).await.unwrap().into_inner().object.unwrap();
    assert!(dropped.partial && dropped.object.len() < theirs.len());
    let text = String::from_utf8_lossy(&dropped.object).into_owned();
    assert!(text.contains("kept") && text.contains("step"), "{text}");
    assert!(!text.contains(applied) && !text.contains("fieldsV1") && !text.contains("FieldsV1"), "{text}");
    assert!(!message(&dropped.object).is_empty());

    // Whole objects of a custom resource have no messages, as the apiserver says with a 406.
    let answer = direct.request(Method::GET, &format!("{crontabs}/one"), &full, "").await;
    assert_eq!(answer.status, 406);
    let refused = grpc.get(get(cron_tabs(), "one", v1::Shape::Full, v1::Encoding::KubeProtobuf)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("crontabs.stable.example.com"), "{refused:?}");
    let selection = v1::Selection {
        resource: Some(cron_tabs()),
        encoding: v1::Encoding::KubeProtobuf.into(),
        ..Default::default()
    };
    assert_eq!(grpc.watch(watch_of(selection.clone())).await.unwrap_err().code(), Code::InvalidArgument);
    let selection = v1::Selection { encoding: v1::Encoding::Any.into(), ..selection };
    let mut frames = Frames::open(&mut grpc, watch_of(selection)).await;
    let Frame::Started(started) = frames.tell().await else { panic!("no start") };
    assert_eq!(started.encoding(), v1::Encoding::Json);
    assert_eq!(frames.snapshot().await.0.len(), 1);
}

/// Owners, which no attribute of an object tells, by a union of a label and an owner.
#[tokio::test(flavor = "multi_thread")]
async fn owners_are_found_in_both_encodings() {
    let World { cluster: _cluster, daemon, direct, .. } = world().await;
    let path = "/api/v1/namespaces/a/configmaps";
    let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}]);
    for (n, owners) in [(0, json!([])), (2, owner("first")), (4, owner("second"))] {
        let mut value = object(n, n);
        value["metadata"]["ownerReferences"] = owners;
        direct.write(Method::POST, path, &value).await;
    }
    let mut grpc = client(&daemon).await;
    let owned = index(v1::Index::OwnerUid, &["second", "third"]);
    for encoding in ENCODINGS {
        let filters = vec![owned.clone(), labels("app=x")];
        let selection = v1::Selection { encoding: encoding.into(), ..filtered("configmaps", filters) };
        let (_, objects) = list(&mut grpc, newest(selection)).await;
        assert_eq!(keys(&objects), ["a/n0", "a/n2", "a/n4"], "{encoding:?}");
        let selection = v1::Selection { encoding: encoding.into(), ..filtered("configmaps", vec![owned.clone()]) };
        assert_eq!(keys(&list(&mut grpc, list_of(selection)).await.1), ["a/n4"], "{encoding:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_the_apiservers() {
    let World { cluster: _cluster, daemon, direct, .. } = world().await;
    let mut grpc = client(&daemon).await;
    let missing = v1::GetRequest { consistency: Some(consistent()), ..get_of(resource("configmaps"), "a", "none") };
    let refused = grpc.get(missing).await.unwrap_err();
    let theirs = direct.get("/api/v1/namespaces/a/configmaps/none").await;
    assert_eq!((refused.code(), theirs.status.as_u16()), (Code::NotFound, 404));
    assert_eq!(details(&refused), ("NOT_FOUND".into(), None, Some(theirs.json())));

    for (field, selector, query) in
        [(false, "a==b=c", "labelSelector=a%3D%3Db%3Dc"), (true, "spec.unknown=x", "fieldSelector=spec.unknown%3Dx")]
    {
        let filter =
            if field { v1::Filter { field_selector: selector.into(), ..Default::default() } } else { labels(selector) };
        let refused = grpc.list(list_of(filtered("configmaps", vec![filter]))).await.unwrap_err();
        let theirs = direct.get(&format!("/api/v1/configmaps?{query}")).await.json();
        assert_eq!((refused.code(), Some(refused.message())), (Code::InvalidArgument, theirs["message"].as_str()));
        assert_eq!(details(&refused), ("INVALID".into(), None, Some(theirs)));
    }

    let from = v1::Consistency {
        bound: Some(v1::consistency::Bound::NotOlderThan("999999999999".into())),
        max_staleness: None,
    };
    let request = v1::ListRequest { selection: Some(filtered("configmaps", vec![])), consistency: Some(from) };
    let refused = grpc.list(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let (reason, retry, _) = details(&refused);
    assert_eq!(reason, "TOO_LARGE_RESOURCE_VERSION");
    assert!(retry.is_some_and(|retry| !retry.is_zero()));
}
