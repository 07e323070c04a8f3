//! Against the real kube-apiserver under churn: every watch by gRPC tells what the same watch by HTTP tells.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use informerd::grpc::pb::v1;
use informerd::lifecycle;
use informerd::upstream::client::ConfigSource;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::fixtures::{
    Client, Frames, client, consistent, filtered, labels, list, namespace, resume, started, watch_of,
};
use super::support::Through;
use super::support::client::{Client as Http, Watch, key, rv};

const OBJECTS: usize = 12;
const STEPS: u64 = 400;
/// The last write, which every selection sees.
const LAST: &str = "last";

/// `ADDED a/one@7 {…}` of everything up to the last write.
async fn by_http(mut watch: Watch) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(60), watch.next()).await.unwrap().unwrap().unwrap();
        let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
        if kind == "BOOKMARK" {
            continue;
        }
        told.push(format!("{kind} {}@{} {object}", key(object), rv(object)));
        if object["metadata"]["name"] == LAST {
            return told;
        }
    }
}

/// The same by gRPC; at each `cut`th event the call is dropped and resumed.
async fn by_grpc(mut client: Client, selection: v1::Selection, from: u64, cut: usize) -> Vec<String> {
    let start = Some(v1::watch_request::Start::FromResourceVersion(from.to_string()));
    let mut frames = Frames::open(&mut client, v1::WatchRequest { start, ..watch_of(selection.clone()) }).await;
    assert!(started(&frames.tell().await));
    let (mut told, mut since) = (Vec::new(), 0);
    loop {
        for event in frames.events(1).await {
            let key = event.key.clone().unwrap();
            let value: Value = serde_json::from_slice(&event.object).unwrap();
            assert_eq!(
                (value["metadata"]["uid"].as_str(), rv(&value).to_string()),
                (Some(&*key.uid), key.resource_version.clone())
            );
            let kind = event.r#type().as_str_name().trim_start_matches("TYPE_").to_owned();
            told.push(format!("{kind} {}/{}@{} {value}", key.namespace, key.name, key.resource_version));
            since += 1;
            if key.name == LAST {
                return told;
            }
        }
        if since >= cut {
            since = 0;
            let token = frames.token.clone();
            frames = Frames::open(&mut client, resume(selection.clone(), &token)).await;
            assert!(started(&frames.tell().await));
        }
    }
}

fn object(n: u64, step: u64) -> Value {
    let namespace = if n.is_multiple_of(2) { "a" } else { "b" };
    let app = ["x", "y", "z"][usize::try_from(step / 3 % 3).unwrap()];
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("n{n}"), "namespace": namespace, "labels": {"app": app}},
        "data": {"step": step.to_string(), "text": "<é> & \u{2028}"},
    })
}

/// Creates, changes, relabels, deletes and creates anew.
async fn churn(direct: &Http) {
    let headers = [("content-type", "application/json")];
    let mut there = [false; OBJECTS];
    for step in 0..STEPS {
        let n = (step * 7 + step / 11) % OBJECTS as u64;
        let value = object(n, step);
        let path = format!("/api/v1/namespaces/{}/configmaps", value["metadata"]["namespace"].as_str().unwrap());
        let held = &mut there[usize::try_from(n).unwrap()];
        let one = format!("{path}/n{n}");
        let answer = match (*held, step % 5) {
            (true, 0) => direct.request(Method::DELETE, &one, &[], "").await,
            (true, _) => direct.request(Method::PUT, &one, &headers, &value.to_string()).await,
            (false, _) => direct.request(Method::POST, &path, &headers, &value.to_string()).await,
        };
        assert!(answer.status.is_success(), "{}", answer.text());
        *held = !(*held && step % 5 == 0);
    }
    let last = json!({"metadata": {"name": LAST, "namespace": "a", "labels": {"app": "x"}}});
    let path = "/api/v1/namespaces/a/configmaps";
    assert_eq!(direct.request(Method::POST, path, &headers, &last.to_string()).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn tells_what_http_tells_under_churn() {
    let cluster = Cluster::start().await;
    for namespace in ["a", "b"] {
        cluster.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n")).await;
    }
    let daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
    daemon.ready().await;
    let direct = Http::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
    let through = Http::new(&daemon.url);
    let mut grpc = client(&daemon).await;
    through.json("/api/v1/configmaps?resourceVersion=0").await;
    let request = v1::ListRequest { selection: Some(filtered("configmaps", vec![])), consistency: Some(consistent()) };
    let from: u64 = list(&mut grpc, request).await.0.resource_version.parse().unwrap();

    let label = |value: &str| v1::Filter {
        index: vec![v1::IndexTerm {
            key: Some(v1::index_term::Key::Label("app".into())),
            values: vec![value.into(), "w".into()],
        }],
        ..Default::default()
    };
    // A path and query, and the same as filters; the union as a set of values.
    let selections = [
        ("/api/v1/configmaps?", vec![]),
        ("/api/v1/configmaps?labelSelector=app%3Dx&", vec![labels("app=x")]),
        ("/api/v1/namespaces/a/configmaps?", vec![namespace("a")]),
        ("/api/v1/configmaps?labelSelector=app+in+(x,w)&", vec![label("x")]),
        ("/api/v1/configmaps?labelSelector=app+in+(x,y)&", vec![labels("app=y"), labels("app=x"), labels("app=x")]),
        (
            "/api/v1/configmaps?fieldSelector=metadata.namespace%3Da&",
            vec![namespace("a"), v1::Filter { names: vec![LAST.into()], ..Default::default() }],
        ),
    ];
    let mut pairs = Vec::new();
    for (target, filters) in selections {
        let path = format!("{target}watch=1&resourceVersion={from}&allowWatchBookmarks=true");
        let (ours, theirs) = (through.watch(&path).await, direct.watch(&path).await);
        let selection = filtered("configmaps", filters);
        let whole = lifecycle::spawn("by-grpc", by_grpc(grpc.clone(), selection.clone(), from, usize::MAX));
        pairs.push((target, ours, theirs, whole, selection));
    }
    let writes = churn(&direct);
    let told = async {
        let mut all = Vec::new();
        for (target, ours, theirs, whole, selection) in pairs {
            let (ours, theirs, whole) = tokio::join!(by_http(ours), by_http(theirs), whole);
            all.push((target, ours, theirs, whole.unwrap(), selection));
        }
        all
    };
    let ((), told) = tokio::join!(writes, told);
    for (target, ours, theirs, whole, selection) in told {
        assert!(whole.len() > 50, "{target}: {}", whole.len());
        assert_eq!(ours, theirs, "{target}");
        assert_eq!(whole, theirs, "{target}");
        // Again, over many reconnects.
        assert_eq!(by_grpc(grpc.clone(), selection.clone(), from, 7).await, theirs, "{target}");
        // And the state it all came to.
        let request = v1::ListRequest { selection: Some(selection), consistency: Some(consistent()) };
        let (_, objects) = list(&mut grpc, request).await;
        let state: BTreeMap<_, _> = objects
            .iter()
            .map(|object| {
                let value: Value = serde_json::from_slice(&object.object).unwrap();
                (key(&value), value)
            })
            .collect();
        let list = direct.json(target.trim_end_matches(['?', '&'])).await;
        let wanted: BTreeMap<_, _> = list["items"].as_array().unwrap().iter().map(|item| (key(item), item)).collect();
        assert!(state.keys().eq(wanted.keys()), "{target}");
        for (key, value) in &state {
            assert_eq!(value["data"], wanted[key]["data"]);
            assert_eq!(rv(value), rv(wanted[key]));
        }
    }
}
