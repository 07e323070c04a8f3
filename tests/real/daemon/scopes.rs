//! `resources:` rules: what lies inside a configured scope is served from it, everything else is forwarded.

use std::time::Duration;

use informerd_sim::{Effect, Fault, Server, Verb};

use super::fixtures::{CONFIG_MAPS, config_map, informers, pod, reads};
use crate::support::client::{Client, names};
use crate::support::{NODE_NAME, Through, eventually};

const PODS: &str = "/api/v1/pods";

/// Who may not read the scope that is configured is told so by the apiserver, and at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_configured_scope_that_is_forbidden_is_left_to_the_apiserver() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    let forbidden = Effect::Answer { code: 403, retry_after: None };
    server.faults().add(Fault::always(forbidden).on("configmaps"));
    let yaml = "resources: [{resource: configmaps, namespaces: [a]}]\nnotSynced: {wait: 30s, then: '429'}\n";
    let through = Through::before(&server, yaml).await;
    let client = Client::new(&through.url);
    for _ in 0..2 {
        let answer = client.get("/api/v1/namespaces/a/configmaps?resourceVersion=0").await;
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    assert_eq!(reads(&through, "forward", "forbidden"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_agent_holds_the_pods_of_its_node() {
    let pods = [("ours-1", NODE_NAME), ("theirs", "node-2"), ("ours-2", NODE_NAME)];
    let yaml =
        "idleTimeout: 200ms\nresources: [{resource: pods, pin: true, fieldSelector: spec.nodeName=$(NODE_NAME)}]\n";
    let (server, through, client) = Through::simulated(pods.map(|(name, node)| pod("a", name, node)), yaml).await;
    // Pinned: it runs before anybody asks, synced before the daemon is ready, and stays.
    through.ready().await;
    let scoped = format!("v1/pods with fields spec.nodeName={NODE_NAME}");
    assert_eq!(informers(&through), std::slice::from_ref(&scoped));
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(informers(&through), std::slice::from_ref(&scoped));
    assert!(
        server
            .requests()
            .iter()
            .any(|r| r.target.contains("watch") && r.target.contains("fieldSelector=spec.nodeName")),
        "the apiserver sends the pods of one node only"
    );

    let local = || through.daemon.reads.metrics().local();
    let select = |selector: &str| format!("{PODS}?resourceVersion=0&fieldSelector={}", selector.replace('=', "%3D"));
    for (path, expected, served) in [
        (select("spec.nodeName=node-1"), vec!["ours-1", "ours-2"], true),
        (select("spec.nodeName=node-1,status.phase=Running"), vec!["ours-1", "ours-2"], true),
        (select("metadata.name=ours-2,spec.nodeName=node-1"), vec!["ours-2"], true),
        (select("status.phase=Failed,spec.nodeName=node-1"), vec![], true),
        (select("spec.nodeName=node-2"), vec!["theirs"], false),
        (select("spec.nodeName!=node-1"), vec!["theirs"], false),
        (select("status.phase=Running"), vec!["ours-1", "ours-2", "theirs"], false),
        (format!("{PODS}?resourceVersion=0"), vec!["ours-1", "ours-2", "theirs"], false),
        ("/api/v1/namespaces/a/pods?resourceVersion=0".to_owned(), vec!["ours-1", "ours-2", "theirs"], false),
    ] {
        let before = local();
        assert_eq!(names(&client.json(&path).await), expected, "{path}");
        assert_eq!(local() - before, u64::from(served), "{path}");
    }
    // A name alone does not tell the node: never a 404 from the narrower cache.
    for name in ["ours-1", "theirs"] {
        client.json(&format!("/api/v1/namespaces/a/pods/{name}?resourceVersion=0")).await;
    }
    assert!(reads(&through, "forward", "out_of_scope") >= 7);

    let mut ours = client.watch(&format!("{}&watch=1", select("spec.nodeName=node-1"))).await;
    let mut all = client.watch(&format!("{PODS}?watch=1&resourceVersion={}", server.revision())).await;
    for _ in 0..2 {
        ours.next_event().await;
    }
    server.create(pod("a", "theirs-2", "node-2")).unwrap();
    server.create(pod("a", "ours-3", NODE_NAME)).unwrap();
    assert_eq!(ours.next_event().await["object"]["metadata"]["name"], "ours-3");
    for name in ["theirs-2", "ours-3"] {
        assert_eq!(all.next_event().await["object"]["metadata"]["name"], name, "the wide watch is forwarded");
    }
    assert_eq!(informers(&through), [scoped]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_namespaces_and_labels() {
    let mut builder = Server::builder();
    for namespace in ["a", "b", "c"] {
        let mut labelled = config_map(namespace, &format!("x-{namespace}"));
        labelled["metadata"]["labels"] = serde_json::json!({"app": "x"});
        builder = builder.object(labelled).object(config_map(namespace, &format!("plain-{namespace}")));
    }
    let server = builder.start().await.unwrap();

    let yaml = "resources: [{resource: configmaps, namespaces: [a, b]}, {resource: services, exclude: true}]\n";
    let through = Through::before(&server, yaml).await;
    let client = Client::new(&through.url);
    let all = ["plain-a", "x-a", "plain-b", "x-b", "plain-c", "x-c"];
    for (path, expected, served) in [
        ("/api/v1/namespaces/a/configmaps", &all[..2], true),
        ("/api/v1/namespaces/b/configmaps", &all[2..4], true),
        ("/api/v1/namespaces/c/configmaps", &all[4..], false),
        (CONFIG_MAPS, &all[..], false),
        ("/api/v1/configmaps?fieldSelector=metadata.namespace%3Da", &all[..2], true),
    ] {
        let before = through.daemon.reads.metrics().local();
        let mark = if path.contains('?') { '&' } else { '?' };
        assert_eq!(names(&client.json(&format!("{path}{mark}resourceVersion=0")).await), expected, "{path}");
        assert_eq!(through.daemon.reads.metrics().local() - before, u64::from(served), "{path}");
    }
    assert_eq!(client.get("/api/v1/namespaces/a/configmaps/x-a?resourceVersion=0").await.status, 200);
    assert_eq!(client.get("/api/v1/namespaces/a/configmaps/nope?resourceVersion=0").await.status, 404);
    assert_eq!(client.get("/api/v1/namespaces/c/configmaps/x-c?resourceVersion=0").await.status, 200);
    client.json("/api/v1/services?resourceVersion=0").await;
    assert_eq!(informers(&through), ["v1/configmaps in a", "v1/configmaps in b"]);
    eventually("both are followed", || server.counts().open_watches("configmaps") == 2).await;
    assert_eq!(server.counts().requests(Verb::List, "services"), 1);
    assert_eq!(reads(&through, "forward", "excluded"), 1);

    let through = Through::before(&server, "resources: [{resource: configmaps, labelSelector: app=x}]\n").await;
    let client = Client::new(&through.url);
    let before = server.counts().requests(Verb::List, "configmaps");
    let selected = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0&labelSelector=app%3Dx")).await;
    assert_eq!(names(&selected), ["x-a", "x-b", "x-c"]);
    let narrower = "/api/v1/namespaces/b/configmaps?resourceVersion=0&labelSelector=app%3Dx,app";
    assert_eq!(names(&client.json(narrower).await), ["x-b"]);
    assert_eq!(server.counts().requests(Verb::List, "configmaps"), before + 1, "by the informer");
    for wider in ["", "&labelSelector=app", "&labelSelector=app+in+(x,y)", "&labelSelector=app%21%3Dx"] {
        client.json(&format!("{CONFIG_MAPS}?resourceVersion=0{wider}")).await;
    }
    assert_eq!(server.counts().requests(Verb::List, "configmaps"), before + 5, "wider ones are forwarded");
    // Going out of the selection is a deletion to those who watch it.
    let path = format!("{CONFIG_MAPS}?watch=1&labelSelector=app%3Dx&resourceVersion={}", server.revision());
    let mut watch = client.watch(&path).await;
    server.update(config_map("a", "x-a")).unwrap();
    assert_eq!(watch.next_event().await["type"], "DELETED");
    eventually("one informer", || informers(&through) == ["v1/configmaps with labels app=x"]).await;
}
