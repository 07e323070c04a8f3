//! Custom resources that come, change, go and come again while the daemon runs, against a real kube-apiserver.

use http::Method;
use serde_json::{Value, json};

use crate::support::client::{Watch, names, rv};
use crate::support::until;
use crate::world::World;

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

impl World {
    /// Creates the definition and waits until the apiserver itself serves it.
    async fn define(&self, versions: &[(&str, bool, &[&str])]) {
        self.write(Method::POST, DEFINITIONS, &definition(versions)).await;
        self.until_status(GADGETS, 200).await;
    }

    async fn create_gadget(&self, name: &str, color: &str) -> u64 {
        let path = "/apis/test.example.com/v1/namespaces/default/gadgets";
        rv(&self.write(Method::POST, path, &gadget(name, color)).await)
    }

    /// Asks until the answer comes from a cache; every answer on the way is right, too.
    async fn comes_from_a_cache(&self, path: &str, expected: &[&str]) -> Value {
        let mut list = Value::Null;
        until(&format!("{path} is served from a cache"), async || {
            let before = self.served();
            list = self.through.json(path).await;
            assert_eq!(names(&list), expected, "{path}");
            self.served() > before
        })
        .await;
        list
    }
}

/// Everything until the clean end: types and names.
async fn rest(watch: &mut Watch) -> Vec<(String, String)> {
    let mut events = Vec::new();
    while let Some(event) = watch.next().await.expect("a clean end") {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events.push((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_changes_under_open_watches() {
    let world = World::start("").await;
    world.define(&[("v1", true, &[])]).await;
    world.create_gadget("one", "red").await;
    world.create_gadget("two", "blue").await;
    let list = world.comes_from_a_cache(&format!("{GADGETS}?resourceVersion=0"), &["one", "two"]).await;
    let colored = format!("{GADGETS}?resourceVersion=0&fieldSelector=spec.color%3Dred");
    assert_eq!(world.same(&colored, &[]).await.status, 400, "not selectable yet");
    let mut watch = world.through.watch(&format!("{GADGETS}?watch=1&resourceVersion={}", rv(&list))).await;
    let mut direct = world.direct.watch(&format!("{GADGETS}?watch=1&resourceVersion={}", rv(&list))).await;

    // A selectable field, one more version, a default and another kind of lists. The apiserver ends the watches of the old
    // definition.
    let mut changed = definition(&[("v1", true, &[".spec.color"]), ("v2", false, &[])]);
    changed["spec"]["names"]["listKind"] = "GadgetCollection".into();
    let spec = &mut changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["size"] = json!({"type": "string", "default": "large"});
    let patch = json!({"spec": changed["spec"]});
    world.write(Method::PATCH, &format!("{DEFINITIONS}/gadgets.test.example.com"), &patch).await;
    world.until_status(&colored, 200).await;
    world.until_status("/apis/test.example.com/v2/gadgets", 200).await;
    assert_eq!(rest(&mut direct).await, [], "what the apiserver does with its own");
    assert_eq!(rest(&mut watch).await, []);

    // No stale refusal, and no answer by the old field table.
    assert_eq!(names(&world.through.json(&colored).await), ["one"]);
    world.comes_from_a_cache(&colored, &["one"]).await;
    let list = world.comes_from_a_cache("/apis/test.example.com/v2/gadgets?resourceVersion=0", &["one", "two"]).await;
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["apiVersion"] == "test.example.com/v2"));
    let mut list = Value::Null;
    until("what nobody has written has the default", async || {
        list = world.through.json(&format!("{GADGETS}?resourceVersion=0")).await;
        let is_new = list["kind"] == "GadgetCollection" && list["items"][0]["spec"]["size"] == "large";
        is_new && list["items"] == world.direct.json(GADGETS).await["items"]
    })
    .await;
    let selected = format!("{GADGETS}?watch=1&resourceVersion={}&fieldSelector=spec.color%3Dred", rv(&list));
    let mut watch = world.through.watch(&selected).await;
    let path = "/apis/test.example.com/v1/namespaces/default/gadgets/two";
    world.write(Method::PATCH, path, &json!({"spec": {"color": "red"}})).await;
    let event = watch.next_event().await;
    assert_eq!((event["type"].as_str(), event["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some("two")));
    world.write(Method::PATCH, path, &json!({"spec": {"color": "green"}})).await;
    assert_eq!(watch.next_event().await["type"], "DELETED");
}
