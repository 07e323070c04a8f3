//! Custom resources that come, change, go and come again while the daemon runs, against a real kube-apiserver.

use std::time::Duration;

use http::Method;
use informerd::upstream::client::ConfigSource;
use serde_json::{Value, json};

use super::fixtures::{JSON, informers, names, next_event};
use crate::cluster::Cluster;
use crate::support::Through;
use crate::support::client::{Client, Watch, rv};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/test.example.com/v1/gadgets";

fn definition(versions: &[(&str, bool, &[&str])]) -> Value {
    let version = |(name, storage, selectable): &(&str, bool, &[&str])| {
        let fields: Vec<_> = selectable.iter().map(|path| json!({"jsonPath": path})).collect();
        // Versions of one and the same schema may not differ in their selectable fields.
        let properties = json!({"color": {"type": "string"}, format!("of-{name}"): {"type": "string"}});
        let spec = json!({"type": "object", "properties": properties});
        json!({
            "name": name, "served": true, "storage": storage, "selectableFields": fields,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.test.example.com"},
        "spec": {
            "group": "test.example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

fn gadget(name: &str, color: &str) -> Value {
    json!({"apiVersion": "test.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"color": color}})
}

struct World {
    _cluster: Cluster,
    direct: Client,
    through: Through,
    client: Client,
}

impl World {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        let through = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
        through.ready().await;
        let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
        let client = Client::new(&through.url);
        Self { _cluster: cluster, direct, through, client }
    }

    async fn write(&self, method: Method, path: &str, body: &Value) -> Value {
        let merge = ("content-type", "application/merge-patch+json");
        let header = if method == Method::PATCH { merge } else { JSON };
        let answer = self.direct.request(method, path, &[header], &body.to_string()).await;
        assert!(answer.status.is_success(), "{path}: {}", answer.text());
        answer.json()
    }

    /// Creates the definition and waits until the apiserver itself serves it.
    async fn define(&self, versions: &[(&str, bool, &[&str])]) {
        self.write(Method::POST, DEFINITIONS, &definition(versions)).await;
        self.until("served", GADGETS, |status| status == 200).await;
    }

    async fn create(&self, name: &str, color: &str) -> u64 {
        let path = "/apis/test.example.com/v1/namespaces/default/gadgets";
        rv(&self.write(Method::POST, path, &gadget(name, color)).await)
    }

    async fn until(&self, what: &str, path: &str, so: impl Fn(u16) -> bool) {
        for _ in 0..150 {
            if so(self.direct.get(path).await.status.as_u16()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("not in 15 s: {what}");
    }

    /// Asks until the answer comes from a cache; every answer on the way is right, too.
    async fn served(&self, path: &str, expected: &[&str]) -> Value {
        let metrics = self.through.daemon.reads.metrics();
        for _ in 0..150 {
            let before = metrics.local();
            let list = self.client.json(path).await;
            assert_eq!(names(&list), expected, "{path}");
            if metrics.local() > before {
                return list;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} is not served from a cache, running are {:?}", informers(&self.through));
    }

    async fn same(&self, path: &str) -> u16 {
        let direct = self.direct.get(path).await;
        let through = self.client.get(path).await;
        assert_eq!((through.status, through.text()), (direct.status, direct.text()), "{path}");
        direct.status.as_u16()
    }
}

/// Everything until the clean end: types and names.
async fn rest(watch: &mut Watch) -> Vec<(String, String)> {
    let mut events = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(30), async {
        while let Some(event) = watch.next().await.expect("a clean end") {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            events.push((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
        }
    });
    end.await.expect("the watch ends");
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_comes_goes_and_comes_again() {
    let world = World::start().await;
    assert_eq!(world.same(&format!("{GADGETS}?resourceVersion=0")).await, 404);
    for round in 0..2 {
        world.define(&[("v1", true, &[])]).await;
        // Found at once: the first answer is not the 404 of a moment ago.
        world.create("one", "red").await;
        let created = world.create("two", "blue").await;
        let path = format!("{GADGETS}?resourceVersion={created}&resourceVersionMatch=NotOlderThan");
        assert_eq!(names(&world.client.json(&path).await), ["one", "two"], "round {round}");
        let list = world.served(&format!("{GADGETS}?resourceVersion={created}"), &["one", "two"]).await;
        let mut watch = world.client.watch(&format!("{GADGETS}?watch=1&resourceVersion={}", rv(&list))).await;
        let three = world.create("three", "red").await;
        let event = next_event(&mut watch).await;
        assert_eq!((event["type"].as_str(), rv(&event["object"])), (Some("ADDED"), three));

        // The apiserver deletes the objects first, which the watch tells, then it ends.
        world.write(Method::DELETE, &format!("{DEFINITIONS}/gadgets.test.example.com"), &json!({})).await;
        let mut events = rest(&mut watch).await;
        events.sort();
        let deleted = ["one", "three", "two"].map(|name| ("DELETED".to_owned(), name.to_owned()));
        assert_eq!(events, deleted, "round {round}");
        let gone = format!("{DEFINITIONS}/gadgets.test.example.com");
        world.until("gone", &gone, |status| status == 404).await;
        world.until("not served", GADGETS, |status| status == 404).await;
        // And so do we, in the same words.
        for path in [GADGETS.to_owned(), format!("{GADGETS}?resourceVersion=0"), format!("{GADGETS}?watch=1")] {
            let mut last = world.client.get(&path).await;
            for _ in 0..50 {
                if last.status == 404 {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                last = world.client.get(&path).await;
            }
            assert_eq!(last.status, 404, "{path}: {}", last.text());
            assert_eq!(world.same(&path).await, 404, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_changes_under_open_watches() {
    let world = World::start().await;
    world.define(&[("v1", true, &[])]).await;
    world.create("one", "red").await;
    world.create("two", "blue").await;
    let list = world.served(&format!("{GADGETS}?resourceVersion=0"), &["one", "two"]).await;
    let colored = format!("{GADGETS}?resourceVersion=0&fieldSelector=spec.color%3Dred");
    assert_eq!(world.same(&colored).await, 400, "not selectable yet");
    let mut watch = world.client.watch(&format!("{GADGETS}?watch=1&resourceVersion={}", rv(&list))).await;
    let mut direct = world.direct.watch(&format!("{GADGETS}?watch=1&resourceVersion={}", rv(&list))).await;

    // A selectable field and one more version. The apiserver ends the watches of the old definition.
    let changed = definition(&[("v1", true, &[".spec.color"]), ("v2", false, &[])]);
    let patch = json!({"spec": changed["spec"]});
    world.write(Method::PATCH, &format!("{DEFINITIONS}/gadgets.test.example.com"), &patch).await;
    world.until("selectable", &colored, |status| status == 200).await;
    world.until("the new version", "/apis/test.example.com/v2/gadgets", |status| status == 200).await;
    assert_eq!(rest(&mut direct).await, [], "what the apiserver does with its own");
    assert_eq!(rest(&mut watch).await, []);

    // No stale refusal, and no answer by the old field table.
    assert_eq!(names(&world.client.json(&colored).await), ["one"]);
    world.served(&colored, &["one"]).await;
    let list = world.served("/apis/test.example.com/v2/gadgets?resourceVersion=0", &["one", "two"]).await;
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["apiVersion"] == "test.example.com/v2"));
    let list = world.client.json(&format!("{GADGETS}?resourceVersion=0")).await;
    let selected = format!("{GADGETS}?watch=1&resourceVersion={}&fieldSelector=spec.color%3Dred", rv(&list));
    let mut watch = world.client.watch(&selected).await;
    let path = "/apis/test.example.com/v1/namespaces/default/gadgets/two";
    world.write(Method::PATCH, path, &json!({"spec": {"color": "red"}})).await;
    let event = next_event(&mut watch).await;
    assert_eq!((event["type"].as_str(), event["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some("two")));
    world.write(Method::PATCH, path, &json!({"spec": {"color": "green"}})).await;
    assert_eq!(next_event(&mut watch).await["type"], "DELETED");
}
