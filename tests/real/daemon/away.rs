//! What is answered while the apiserver does not answer: nothing that needs it, or the last state, which says that it is.

use http::Method;

use crate::support::client::{Answer, Client, rv};
use crate::support::{Through, file, until};
use crate::world::{JSON, World};

const SERVE: &str = r#"
listen: ["http://127.0.0.1:0", "delegated+https://127.0.0.1:0"]
whileAway: serve
explainHeader: true
authentication: {ttl: 60s}
resources:
- {resource: services, whileAway: refuse}
"#;
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What only the apiserver could answer as it is asked.
const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
const GROUPS: (&str, &str) =
    ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json");

async fn create(client: &Client, path: &str, body: &str) -> Answer {
    client.request(Method::POST, path, &[JSON], body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_state_is_told_with_its_age_where_that_was_chosen() {
    let World { cluster, daemon: through, direct, through: client } = World::start(SERVE).await;
    let strict = Through::of(cluster.admin(), "").await;
    strict.ready().await;
    let (plain, delegated) = (Client::new(&strict.url), through.bearer(1, "admin-token"));
    let named = |name: &str| format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}"}}}}"#);
    assert_eq!(create(&client, CONFIG_MAPS, &named("one")).await.status, 201);
    // Deleted at a revision that nobody is told.
    assert_eq!(create(&client, CONFIG_MAPS, &named("two")).await.status, 201);
    assert_eq!(client.request(Method::DELETE, &format!("{CONFIG_MAPS}/two"), &[], "").await.status, 200);
    let now = rv(&direct.json("/api/v1/configmaps").await);
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = file(directory.path(), "kubeconfig", informerd_sim::kubeconfig("x", &through.url));
    let cache = directory.path().join("cache");
    let kubectl = async |args: &[&str]| {
        let cache = format!("--cache-dir={}", cache.display());
        cluster.kubectl(&kubeconfig, [&[cache.as_str()], args].concat()).await
    };
    for client in [&client, &plain, &delegated] {
        client.json(&format!("/api/v1/configmaps?resourceVersion={now}")).await;
        client.json("/api/v1/services?resourceVersion=0").await;
        for path in ["/version", "/api", "/apis"] {
            assert_eq!(client.get(path).await.status, 200);
            assert_eq!(client.request(Method::GET, path, &[GROUPS], "").await.status, 200);
        }
    }
    let shown = kubectl(&["get", "configmaps"]).await;
    assert!(shown.status.success() && shown.stderr.is_empty(), "{shown:?}");
    let now = rv(&client.json("/api/v1/configmaps").await);

    cluster.kill_apiserver().await;
    std::fs::remove_dir_all(&cache).unwrap();
    let shown = kubectl(&["get", "configmaps"]).await;
    let (out, told) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    assert!(shown.status.success() && out.contains("one"), "{out}{told}");
    assert!(told.contains("Warning: informerd: the kube-apiserver does not answer"), "{told}");
    let shown = kubectl(&["get", "configmap", "one", "-o", "yaml"]).await;
    assert!(shown.status.success() && String::from_utf8_lossy(&shown.stdout).contains("name: one"), "{shown:?}");

    for (path, headers) in [
        ("/api/v1/configmaps", &[][..]),
        (CONFIG_MAPS, &[]),
        (CONFIG_MAPS, &[TABLE]),
        (CONFIG_MAPS, &[("user-agent", "curl/8")]),
        (CONFIG_MAPS, &[("authorization", "Bearer whatever")]),
        (&format!("{CONFIG_MAPS}/one"), &[]),
        (&format!("{CONFIG_MAPS}?limit=1"), &[]),
        ("/api/v1/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan", &[]),
        ("/version", &[]),
        ("/apis", &[]),
        ("/apis", &[GROUPS]),
    ] {
        client.request(Method::GET, path, headers, "").await.assert_old(path);
    }
    delegated.get(CONFIG_MAPS).await.assert_old("delegated");
    let list = client.get("/api/v1/configmaps").await;
    assert_eq!(rv(&list.json()), now);
    let plan = list.headers["x-informerd-plan"].to_str().unwrap();
    assert!(plan.starts_with(&format!("served; reason=away; revision={now}; age=")), "{plan}");
    // What the cache answers anyway is not old.
    let any = client.get("/api/v1/configmaps?resourceVersion=0").await;
    assert_eq!((any.status.as_u16(), any.warnings().len()), (200, 0));

    let future = now + 1000;
    for (path, headers) in [
        // Nobody has seen these, or may be told them.
        ("/api/v1/secrets", &[][..]),
        ("/api/v1/services", &[]),
        ("/apis/apps", &[]),
        (&format!("{CONFIG_MAPS}/none"), &[]),
        (&format!("{CONFIG_MAPS}/one/status"), &[]),
        (CONFIG_MAPS, &[("accept", "application/yaml")]),
        (CONFIG_MAPS, &[("impersonate-user", "reader")]),
        (&format!("{CONFIG_MAPS}?resourceVersion={future}"), &[]),
        (&format!("{CONFIG_MAPS}?resourceVersion=1&resourceVersionMatch=Exact"), &[]),
        (&format!("{CONFIG_MAPS}?labelSelector=!!"), &[]),
        // Another's credentials.
        ("/version", &[("authorization", "Bearer whatever")]),
    ] {
        client.request(Method::GET, path, headers, "").await.assert_unanswered(path);
    }
    create(&client, CONFIG_MAPS, &named("three")).await.assert_unanswered("a write");
    for path in ["/api/v1/configmaps", "/version", "/apis"] {
        plain.get(path).await.assert_unanswered(path);
    }
    // A review that cannot be made is not a yes.
    for token in ["reader-token", "nobody-token", "wrong-token"] {
        delegated.with_token(token).get(CONFIG_MAPS).await.assert_unanswered(token);
    }
    delegated.get("/version").await.assert_unanswered("a document");

    cluster.start_apiserver().await;
    until("the apiserver answers again", async || {
        let answer = client.get("/api/v1/configmaps").await;
        answer.warnings().is_empty() && answer.status == 200
    })
    .await;
}
