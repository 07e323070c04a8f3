//! Who read what, as the audit log tells it.

use std::path::Path;

use informerd::grpc::pb::v1;
use serde_json::{Value, json};

use crate::access::streams::work;
use crate::access::typed::{get, list, selection, send_as, status, status_as, watch};
use crate::access::world::World;
use crate::support::grpc::add;
use crate::support::{eventually, file};

/// All that a log tells of.
pub(super) fn events(path: &Path) -> impl Iterator<Item = Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may be half written.
    let whole: Vec<_> = text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect();
    whole.into_iter().map(|line| serde_json::from_str(&line).unwrap())
}

/// Those of the delegated listener.
fn lines(path: &Path) -> Vec<Value> {
    events(path).filter(|event| event["user"]["username"] != "system:unsecured").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_read_answered_here_is_told_of_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    // What is read by this test itself is of nobody.
    let rules =
        "[{level: None, users: ['system:unsecured']}, {level: RequestResponse, verbs: [watch]}, {level: Request}]";
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: {rules}\n");
    let policy = file(directory.path(), "policy.yaml", policy);
    let yaml = format!(
        "audit: {{log: {}, policyFile: {}}}\nauthentication: {{anonymous: forward}}\nconsistentReads: upstream\n",
        log.display(),
        policy.display()
    );
    let world = World::warmed(&yaml, &["/api/v1/configmaps"]).await;
    let told = || events(&log).collect::<Vec<_>>();
    assert_eq!(told(), Vec::<Value>::new());
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
    eventually("four lines", || told().len() >= 4).await;
    drop((watch, reader));
    eventually("the end of the watch is told", || told().len() >= 5).await;
    let told = told();
    assert_eq!(told.len(), 5, "{told:#?}");
    // No level has more than this one.
    let is_short = |event: &Value| event["level"] == "Metadata" && event.get("requestObject").is_none();
    assert!(told.iter().all(|event| is_short(event) && event.get("responseObject").is_none()), "{told:#?}");
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
}

/// The same of typed calls: each part of what is selected is a line.
#[tokio::test(flavor = "multi_thread")]
async fn typed_reads_are_told_of_alike() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let world = World::warmed(&format!("audit: {{log: {}}}\n", log.display()), &["/api/v1/configmaps"]).await;
    let mut told = lines(&log).len();
    let mut next = async |what: &str, count: usize| {
        eventually(what, || lines(&log).len() >= told + count).await;
        let new = lines(&log)[told..].to_vec();
        assert_eq!(new.len(), count, "{what}: {new:#?}");
        told += count;
        new
    };
    let (reader, nobody) = (world.through(Some("reader-token")), world.through(Some("nobody-token")));
    let headers = [("user-agent", "test"), ("audit-id", "mine")];
    let answer = send_as(&reader, "Objects/List", &headers, &list(&["a", "b"])).await;
    assert_eq!(answer.headers()["audit-id"], "mine");
    drop(answer);
    let events = next("a list", 2).await;
    for (event, namespace) in events.iter().zip(["a", "b"]) {
        assert_eq!((&event["auditID"], &event["userAgent"]), (&json!("mine"), &json!("test")));
        assert_eq!((&event["verb"], &event["requestURI"]), (&json!("list"), &json!("/informerd.v1.Objects/List")));
        assert_eq!((&event["user"]["username"], &event["stage"]), (&json!("reader"), &json!("ResponseComplete")));
        let object = json!({"resource": "configmaps", "namespace": namespace, "apiVersion": "v1"});
        assert_eq!((&event["objectRef"], &event["responseStatus"]["code"]), (&object, &json!(200)));
        assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
    }
    for (client, name, code, decision) in
        [(&reader, "one", 200, "allow"), (&reader, "none", 404, "allow"), (&nobody, "one", 403, "forbid")]
    {
        status(client, "Get", &get("a", name)).await;
        let event = &next("a get", 1).await[0];
        assert_eq!((&event["objectRef"]["name"], &event["responseStatus"]["code"]), (&json!(name), &json!(code)));
        assert_eq!(event["annotations"]["authorization.k8s.io/decision"], decision);
    }
    status(&world.through(Some("wrong-token")), "List", &list(&["a"])).await;
    assert_eq!(next("without a right", 1).await[0]["responseStatus"]["code"], 401);
    let stages =
        |events: &[Value]| events.iter().map(|event| event["stage"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let stream = send_as(&reader, "Objects/Watch", &[], &watch(&["a"])).await;
    let began = next("a watch", 1).await;
    assert_eq!((stages(&began), &began[0]["verb"]), (vec!["ResponseStarted".to_owned()], &json!("watch")));
    drop(stream);
    assert_eq!(stages(&next("its end", 1).await), ["ResponseComplete"]);
    let stream = send_as(&reader, "Objects/Sync", &[], &add(1, watch(&["b"]), None)).await;
    assert_eq!(next("a watch among many", 1).await[0]["objectRef"]["namespace"], "b");
    drop(stream);
    next("its end", 1).await;
    let worker = work(&world, "reader-token", "g", selection(&["a"])).await.unwrap();
    assert_eq!(next("a worker", 1).await[0]["requestURI"], "/informerd.v1.Queue/Work");
    drop(worker);
    next("its end", 1).await;
    status_as(&nobody, "Cache/ListInformers", &[], &v1::ListInformersRequest {}).await;
    let event = &next("a look at the caches", 1).await[0];
    assert_eq!((&event["objectRef"], &event["responseStatus"]["code"]), (&Value::Null, &json!(403)));
    // Forwarded, as over HTTP, by nobody: what is left undecided is refused here, and told.
    let headers = [("impersonate-user", "admin")];
    status_as(&reader, "Objects/List", &headers, &list(&["a"])).await;
    assert_eq!(next("an impersonation", 1).await[0]["responseStatus"]["code"], 503);
}
