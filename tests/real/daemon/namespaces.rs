//! An identity that may not list a resource everywhere, but in one namespace, against a real kube-apiserver.

use std::time::Duration;

use http::Method;
use informerd::apiserver::client::ConfigSource;

use super::fixtures::{informers, reads};
use crate::cluster::Cluster;
use crate::support::client::{names, rv};
use crate::support::until;
use crate::world::{JSON, World};

const FIXTURES: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: a}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: b}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: readers}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}]
";

fn grant(namespace: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: readers, namespace: {namespace}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: readers}}\nsubjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader}}]\n"
    )
}

/// As a user that may read one namespace.
async fn world() -> World {
    let cluster = Cluster::start().await;
    cluster.apply(FIXTURES).await;
    cluster.apply(&grant("a")).await;
    let source = ConfigSource::kubeconfig(&cluster.info.kubeconfigs.reader);
    let mut world = World::between(cluster, source, "").await;
    world.direct = world.direct.with_token("reader-token");
    // The authorizer follows role bindings by an informer of its own.
    world.until_status(&of("a"), 200).await;
    world
}

fn of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

impl World {
    /// The refusal the apiserver itself has for this.
    async fn refused(&self, method: Method, path: &str, body: &str) {
        assert_eq!(self.same_of(method, path, &[JSON], body).await.status, 403, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_is_served_and_the_rest_refused_by_the_apiserver() {
    let world = world().await;
    for selection in ["&labelSelector=!x", "", "&fieldSelector=metadata.name%3Done"] {
        let before = world.served();
        let list = world.through.json(&format!("{}?resourceVersion=0{selection}", of("a"))).await;
        assert_eq!((names(&list), world.served()), (vec!["one"], before + 1), "{selection}");
    }
    let object = world.through.json(&format!("{}/one?resourceVersion=0", of("a"))).await;
    assert_eq!(object["metadata"]["namespace"], "a");
    let running = informers(&world.daemon);
    assert!(running.contains(&"v1/configmaps in a".to_owned()), "{running:?}");

    let list = world.through.json(&format!("{}?resourceVersion=0", of("a"))).await;
    let path = format!("{}?watch=1&resourceVersion={}", of("a"), rv(&list));
    let mut watch = world.through.watch(&path).await;
    assert_eq!(watch.status, 200);
    world.cluster.kubectl_ok(["create", "configmap", "two", "-n", "a"]).await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "two");

    for path in [
        format!("{}?resourceVersion=0", of("b")),
        of("b"),
        format!("{}/one?resourceVersion=0", of("b")),
        format!("{}?watch=1&resourceVersion=0", of("b")),
        "/api/v1/configmaps?resourceVersion=0".to_owned(),
        "/api/v1/configmaps?watch=1".to_owned(),
        "/api/v1/namespaces/a/pods?resourceVersion=0".to_owned(),
        "/api/v1/nodes?resourceVersion=0".to_owned(),
        "/api/v1/secrets".to_owned(),
    ] {
        world.refused(Method::GET, &path, "").await;
    }
    world.refused(Method::POST, &of("a"), r#"{"metadata":{"name":"x"}}"#).await;
    assert!(reads(&world.daemon, "forward", "forbidden") >= 5);
}

/// What was granted later is served without a restart, and what is served outlives the apiserver.
#[tokio::test(flavor = "multi_thread")]
async fn grants_come_and_the_apiserver_goes() {
    let world = world().await;
    let path = format!("{}?resourceVersion=0", of("b"));
    assert_eq!(names(&world.through.json(&format!("{}?resourceVersion=0", of("a"))).await), ["one"]);
    world.refused(Method::GET, &path, "").await;
    world.cluster.apply(&grant("b")).await;
    world.until_status(&of("b"), 200).await;
    assert_eq!(names(&world.through.json(&path).await), ["one"], "forwarded at once");
    // What was shown there is not gone behind here: this read has it proved while there is somebody to ask.
    assert_eq!(names(&world.through.json(&format!("{}?resourceVersion=0", of("a"))).await), ["one"]);

    world.cluster.stop_apiserver().await;
    // Until every informer has tried again and has failed in another way than before, or for long enough.
    let factory = &world.daemon.daemon.factory;
    let is_refused = || factory.informers().iter().any(|one| matches!(one.status().failing, None | Some(403)));
    for _ in (0..20).take_while(|n| *n < 4 || is_refused()) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answer = world.through.get(&format!("{}?resourceVersion=0", of("a"))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    world.cluster.start_apiserver().await;
    world.until_status(&of("a"), 200).await;
    world.cluster.kubectl_ok(["create", "configmap", "late", "-n", "a"]).await;
    let path = format!("{}?resourceVersion=0", of("a"));
    until("the informer goes on", async || names(&world.through.json(&path).await) == ["late", "one"]).await;

    // A right that goes is noticed when the watch begins anew, and what is held is not served any longer.
    world.cluster.kubectl_ok(["delete", "rolebinding", "readers", "-n", "a"]).await;
    world.cluster.stop_apiserver().await;
    world.cluster.start_apiserver().await;
    until("it is refused", async || world.through.get(&path).await.status == 403).await;
    world.refused(Method::GET, &path, "").await;
}
