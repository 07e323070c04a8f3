//! Who read what, as the audit log tells it.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::eventually;
use crate::world::World;

/// Those of the delegated listener.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may be half written.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["user"]["username"] != "system:unsecured")
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_answered_here_is_told_of_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let (log, policy) = (directory.path().join("audit.log"), directory.path().join("policy.yaml"));
    let rules = "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: None, users: [admin, 'system:unsecured']}, {level: RequestResponse}]\n";
    std::fs::write(&policy, rules).unwrap();
    let world =
        World::start(&format!("audit: {{log: {}}}\nauthentication: {{anonymous: forward}}\n", log.display())).await;
    world.settled().await;
    world.warm(&["/api/v1/configmaps"]).await;
    let before = lines(&log).len();
    let target = "/api/v1/namespaces/a/configmaps?resourceVersion=0&labelSelector=app";
    let headers = [("user-agent", "test"), ("audit-id", "mine")];
    let reader = world.through(Some("reader-token"));
    let answer = reader.request(http::Method::GET, target, &headers, "").await;
    assert_eq!((answer.status.as_u16(), answer.headers["audit-id"].to_str().unwrap()), (200, "mine"));
    assert_eq!(world.through(Some("nobody-token")).get(target).await.status, 403);
    assert_eq!(world.through(Some("wrong-token")).get(target).await.status, 401);
    // The apiserver tells of these.
    assert_eq!(world.through(None).get(target).await.status, 403);
    assert_eq!(reader.get("/api/v1/namespaces/a/configmaps").await.status, 200);
    assert_eq!(reader.get("/version").await.status, 200);
    let watch = reader.watch("/api/v1/configmaps?watch=1&resourceVersion=0").await;
    eventually("four lines", || lines(&log).len() >= before + 4).await;
    drop((watch, reader));
    eventually("the end of the watch is told", || lines(&log).len() >= before + 5).await;
    let told = &lines(&log)[before..];
    assert_eq!(told.len(), 5, "{told:#?}");
    let first = &told[0];
    assert_eq!((&first["auditID"], &first["requestURI"]), (&json!("mine"), &json!(target)));
    assert_eq!((&first["verb"], &first["userAgent"]), (&json!("list"), &json!("test")));
    assert_eq!(first["user"]["username"], "reader");
    assert_eq!(first["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(first["objectRef"], json!({"resource": "configmaps", "namespace": "a", "apiVersion": "v1"}));
    let code = |n: usize| told[n]["responseStatus"]["code"].as_u64().unwrap();
    assert_eq!((code(0), code(1), code(2), code(3)), (200, 403, 401, 200));
    assert_eq!((&told[1]["user"]["username"], &told[2]["user"]["username"]), (&json!("nobody"), &json!("")));
    assert_eq!((&told[3]["stage"], &told[4]["stage"]), (&json!("ResponseStarted"), &json!("ResponseComplete")));
    let text = std::fs::read_to_string(&log).unwrap();
    for secret in ["reader-token", "nobody-token", "wrong-token"] {
        assert!(!text.contains(secret));
    }
    // A policy in the apiserver's form chooses. (The files of a test's configuration are what the test's source says.)
    let policy = informerd::auth::audit::Policy::parse(&std::fs::read_to_string(&policy).unwrap());
    assert!(policy.is_ok(), "{policy:?}");
}
