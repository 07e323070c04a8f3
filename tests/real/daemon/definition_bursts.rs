//! Many definitions that change: only what has changed is asked for.

use http::Method;
use informerd::apiserver::RequestVerb;
use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, informers};
use crate::cluster::Cluster;
use crate::support::client::rv;
use crate::support::eventually;
use crate::support::patience::{until, within};
use crate::world::{World, admin};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(group: &str, plural: &str, selectable: &[&str]) -> Value {
    let fields: Vec<_> = selectable.iter().map(|path| json!({"jsonPath": path})).collect();
    let spec = json!({"type": "object", "properties": {"color": {"type": "string"}, "size": {"type": "string"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": format!("Kind{plural}"), "listKind": format!("Kind{plural}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "selectableFields": fields,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

fn path(group: &str, plural: &str) -> String {
    format!("/apis/{group}/v1/{plural}?resourceVersion=0")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_definitions_costs_the_apiserver_nothing() {
    let cluster = Cluster::start().await;
    let direct = admin(&cluster);
    let create = async |group: &str, plural: &str| {
        direct.write(Method::POST, DEFINITIONS, &definition(group, plural, &[])).await;
    };
    const USED: usize = 10;
    for n in 0..USED {
        create("used.example.com", &format!("u{n}")).await;
    }
    for n in 0..USED {
        let path = path("used.example.com", &format!("u{n}"));
        until("a definition is served", async || direct.get(&path).await.status == 200).await;
    }
    let World { cluster: _cluster, daemon: through, through: client, .. } = World::before(cluster, "").await;
    let used: Vec<_> = (0..USED).map(|n| path("used.example.com", &format!("u{n}"))).collect();
    for path in used.iter().chain([&format!("{CONFIG_MAPS}?resourceVersion=0")]) {
        client.json(path).await;
    }
    eventually("all are in use", || informers(&through).len() > USED).await;
    let watched = "/apis/used.example.com/v1/u0?watch=1&resourceVersion=0";
    let mut watch = client.watch(watched).await;
    let asked = || through.daemon.upstream.metrics().total(RequestVerb::Discovery, None);
    let before = asked();
    // New definitions of new groups and of the group in use, and annotations of those in use.
    for n in 0..60 {
        create(["used.example.com", "burst.example.com"][n % 2], &format!("b{n}")).await;
        let annotation = json!({"metadata": {"annotations": {"a": n.to_string()}, "labels": {"a": n.to_string()}}});
        let name = format!("{DEFINITIONS}/u{}.used.example.com", n % USED);
        direct.write(Method::PATCH, &name, &annotation).await;
        client.json(&used[n % USED]).await;
        client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    }
    // Two may be about the store.
    assert!(asked() <= before + 2, "{} questions", asked() - before);
    // The watch sees that a definition has changed, so all that was before it was seen, too.
    let changed = definition("used.example.com", "u0", &[".spec.color"]);
    let patch = json!({"spec": changed["spec"]});
    direct.write(Method::PATCH, &format!("{DEFINITIONS}/u0.used.example.com"), &patch).await;
    while within("the watch ends", watch.next()).await.unwrap().is_some() {}
    for path in &used {
        client.json(path).await;
    }
    assert!(asked() <= before + 2 + 2 * 3, "{} questions", asked() - before);

    // The newest is found, and served like all others.
    let new = path("burst.example.com", "b59");
    until("the last definition is served", async || direct.get(&new).await.status == 200).await;
    until("and found", async || client.get(&new).await.status == 200).await;
    let object = json!({"apiVersion": "burst.example.com/v1", "kind": "Kindb59", "metadata": {"name": "one"}});
    let list = client.json(&new).await;
    let mut watch =
        client.watch(&format!("/apis/burst.example.com/v1/b59?watch=1&resourceVersion={}", rv(&list))).await;
    direct.write(Method::POST, "/apis/burst.example.com/v1/namespaces/default/b59", &object).await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "one");
}
