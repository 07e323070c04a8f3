//! Rights that are taken away end what was opened by them, within seconds and with an error that says so.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::access::world::World;
use crate::support::client::{Client, Watch};

const WATCH: &str = "watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan";

async fn open(client: &Client, collection: &str) -> Watch {
    let mut watch = client.watch(&format!("{collection}?{WATCH}")).await;
    assert_eq!(watch.status, 200, "{collection}");
    while watch.next().await.unwrap().unwrap()["type"] != "BOOKMARK" {}
    watch
}

/// The type of the next event that is no bookmark.
async fn added(watch: &mut Watch) -> String {
    loop {
        let event = watch.next().await.unwrap().expect("the watch goes on");
        if event["type"] != "BOOKMARK" {
            return event["type"].as_str().unwrap().to_owned();
        }
    }
}

/// The ERROR that ends the stream; nothing may follow it.
async fn ended(watch: &mut Watch) -> Value {
    loop {
        let event = watch.next().await.unwrap().expect("an error comes before the end");
        if event["type"] == "ERROR" {
            assert!(watch.next().await.unwrap().is_none(), "nothing follows an error");
            return event["object"].clone();
        }
    }
}

async fn replace(admin: &Client, path: &str, change: impl Fn(&mut Value)) {
    let mut object = admin.json(path).await;
    change(&mut object);
    let json = [("content-type", "application/json")];
    let answer = admin.request(Method::PUT, path, &json, &object.to_string()).await;
    assert!(answer.status.is_success(), "{}", answer.text());
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_right() {
    let world = World::start("").await;
    world.settled().await;
    let admin = world.admin();
    let wide = "/api/v1/configmaps";
    let (a, b) = ("/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/b/configmaps");
    let mut unrelated = open(&world.through(Some("admin-token")), wide).await;
    let fixtures = crate::access::world::FIXTURES;
    for (what, account, collection) in [
        ("role", "space", a),
        ("role binding", "space", a),
        ("cluster role", "wide", wide),
        ("cluster role binding", "wide", wide),
        ("rules of a role", "space", a),
        ("subjects of a binding", "wide", b),
    ] {
        let through = world.through(Some(&world.token(account, &[]).await));
        let mut watch = open(&through, collection).await;
        let started = Instant::now();
        match what {
            "role" => world.delete(&format!("{RBAC}/namespaces/a/roles/space")).await,
            "role binding" => world.delete(&format!("{RBAC}/namespaces/a/rolebindings/space")).await,
            "cluster role" => world.delete(&format!("{RBAC}/clusterroles/wide")).await,
            "cluster role binding" => world.delete(&format!("{RBAC}/clusterrolebindings/wide")).await,
            "rules of a role" => {
                let role = format!("{RBAC}/namespaces/a/roles/space");
                replace(&admin, &role, |role| role["rules"] = json!([])).await;
            }
            _ => {
                let binding = format!("{RBAC}/clusterrolebindings/wide");
                replace(&admin, &binding, |binding| binding["subjects"] = json!([])).await;
            }
        }
        let status = ended(&mut watch).await;
        eprintln!("revoked by {what}: the stream ended after {:?}", started.elapsed());
        assert_eq!((&status["code"], &status["reason"]), (&json!(403), &json!("Forbidden")), "{what}: {status}");
        // A new request hears the same words from both.
        let target = format!("{collection}?{WATCH}");
        let (ours, theirs) = (through.get(&target).await, {
            let direct = world.direct(Some(&world.token(account, &[]).await));
            direct.get(&target).await
        });
        assert_eq!(ours.status, 403, "{what}");
        assert_eq!(ours.text(), theirs.text(), "{what}");
        assert_eq!(ours.json(), status, "{what}: in the stream as outside of it");
        world.cluster.apply(fixtures).await;
        // What was denied a moment ago is allowed again at once, too.
        let mut again = open(&through, collection).await;
        let tick = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"generateName":"tick-"}}"#;
        let json = [("content-type", "application/json")];
        assert_eq!(admin.request(Method::POST, b, &json, tick).await.status, 201);
        assert_eq!(admin.request(Method::POST, a, &json, tick).await.status, 201);
        assert_eq!(added(&mut again).await, "ADDED");
    }
    // Whoever may still, never noticed.
    for _ in 0..12 {
        assert_eq!(added(&mut unrelated).await, "ADDED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_account_ends_its_token() {
    let world = World::start("").await;
    world.settled().await;
    let through = world.through(Some(&world.token("wide", &[]).await));
    let mut watch = open(&through, "/api/v1/configmaps").await;
    let started = Instant::now();
    world.delete("/api/v1/namespaces/a/serviceaccounts/wide").await;
    let status = ended(&mut watch).await;
    let took = started.elapsed();
    eprintln!("account deleted: the stream ended after {took:?}");
    assert_eq!(status["code"], 401, "{status}");
    assert_eq!(through.get("/api/v1/configmaps?resourceVersion=0").await.status, 401);
    assert!(took < Duration::from_secs(60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_ends_the_tokens_bound_to_it() {
    let world = World::start("authentication: {node: node-x}\n").await;
    world.settled().await;
    let pod = |name: &str, node: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: a}}\nspec: {{serviceAccountName: wide, nodeName: {node}, containers: [{{name: main, image: image}}]}}\n"
        )
    };
    world.cluster.apply(&(pod("here", "node-x") + &pod("there", "node-y"))).await;
    let here = world.token("wide", &["--bound-object-kind", "Pod", "--bound-object-name", "here"]).await;
    let there = world.token("wide", &["--bound-object-kind", "Pod", "--bound-object-name", "there"]).await;
    let free = world.token("wide", &[]).await;
    let collection = "/api/v1/configmaps";
    // A token of another node, or of none, is worth nothing here, neither for what is served nor for what is forwarded.
    for foreign in [there.as_str(), free.as_str(), "admin-token"] {
        let client = world.through(Some(foreign));
        for target in ["/api/v1/configmaps?resourceVersion=0", "/api/v1/configmaps", "/version", "/apis"] {
            assert_eq!(client.get(target).await.status, 401, "{target}");
        }
        assert_eq!(client.request(Method::POST, collection, &[], "{}").await.status, 401);
    }
    let through = world.through(Some(&here));
    assert_eq!(through.get("/version").await.status, 200);
    let mut watch = open(&through, collection).await;
    let started = Instant::now();
    let now = r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;
    let json = [("content-type", "application/json")];
    let path = "/api/v1/namespaces/a/pods/here";
    assert_eq!(world.admin().request(Method::DELETE, path, &json, now).await.status, 200);
    let status = ended(&mut watch).await;
    eprintln!("pod deleted: the stream ended after {:?}", started.elapsed());
    assert_eq!(status["code"], 401, "{status}");
    assert_eq!(through.get(&format!("{collection}?resourceVersion=0")).await.status, 401);
}
