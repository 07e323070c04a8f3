//! Many definitions that change: who reads what has not changed waits for nothing, and only what has changed is asked for.

use std::time::Duration;

use http::Method;
use informerd::upstream::RequestVerb;
use informerd::upstream::client::ConfigSource;
use informerd::upstream::discovery::read_aggregated;
use informerd_sim::{Effect, Fault, Server, Verb};
use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, config_map, informers};
use crate::cluster::Cluster;
use crate::support::client::{Client, names, rv};
use crate::support::patience::{until, within};
use crate::support::{Through, eventually};
use crate::world::admin;

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

/// Questions about resources that a simulated server has got so far.
fn questions(server: &Server) -> Vec<String> {
    let is_question = |target: &str| {
        let path = target.split('?').next().unwrap_or_default();
        let parts = path.trim_matches('/').split('/').count();
        path.starts_with("/api") && !target.contains("watch=") && (parts <= 3 || path.starts_with(DEFINITIONS))
    };
    let targets = server.requests().into_iter().map(|request| request.target);
    targets
        .filter(|target| is_question(target) && !target.starts_with("/api/v1/") && !target.contains("limit=1&"))
        .collect()
}

/// The cluster of a large company: what is asked for does not depend on how many definitions there are.
#[tokio::test(flavor = "multi_thread")]
async fn with_1500_definitions_only_what_has_changed_is_asked_for() {
    let name = |n: usize| format!("r{n}");
    let group = |n: usize| format!("g{}.example.com", n % 100);
    let mut server = Server::builder().object(config_map("a", "one"));
    for n in 0..1500 {
        server = server.object(definition(&group(n), &name(n), &[]));
    }
    let server = server.start().await.unwrap();
    let through = Through::before(&server, "").await;
    through.ready().await;
    let client = Client::new(&through.url);
    // Two documents, and three pages of definitions; the APIServices.
    let start = questions(&server);
    assert!(start.len() <= 12, "{start:#?}");
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    for n in 0..20 {
        client.json(&path(&group(n), &name(n))).await;
    }
    let used = questions(&server).len();
    assert!(
        used <= start.len() + 20,
        "one for each definition in use: {:#?}",
        questions(&server).split_off(start.len())
    );
    // The rest of the informers' life: a watch that ends when its definition changes.
    let mut watch = client.watch(&format!("/apis/{}/v1/{}?watch=1&resourceVersion=0", group(0), name(0))).await;
    let change = |n: usize, color: &str| {
        let mut changed = definition(&group(n), &name(n), &[]);
        changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!(color);
        server.update(changed).unwrap();
    };
    for n in 100..120 {
        change(n, "red");
    }
    // All of these are of the same groups as those in use.
    change(0, "red");
    while within("the watch ends", watch.next()).await.unwrap().is_some() {}
    let changed = questions(&server).split_off(used);
    assert!(changed.len() <= 3, "{changed:#?}");
    for n in 1..20 {
        client.json(&path(&group(n), &name(n))).await;
    }
    assert_eq!(questions(&server).len(), used + changed.len(), "nothing else has changed");
}

/// Discovery answers nothing at all while definitions change.
#[tokio::test(flavor = "multi_thread")]
async fn reads_of_what_has_not_changed_do_not_wait_for_discovery() {
    let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
    server.create(definition("used.example.com", "things", &[])).unwrap();
    let through = Through::before(&server, "").await;
    through.ready().await;
    let client = Client::new(&through.url);
    let configmaps = format!("{CONFIG_MAPS}?resourceVersion=0");
    for path in [&configmaps, &path("used.example.com", "things")] {
        client.json(path).await;
    }
    let held = [Verb::Other, Verb::Get]
        .map(|verb| server.faults().add(Fault::always(Effect::Delay(Duration::from_secs(3600))).verb(verb)));
    for n in 0..20 {
        server.create(definition("used.example.com", &format!("n{n}"), &[])).unwrap();
        server.create(definition(&format!("g{n}.example.com"), "things", &[])).unwrap();
    }
    // Somebody who reads what is new waits, and shows that the changes are noticed.
    let url = through.url.clone();
    // A read may come before the changes do.
    let is_asked = std::cell::Cell::new(false);
    let waits = async {
        loop {
            let waited = Client::new(&url).try_get(&path("used.example.com", "n19")).await;
            if is_asked.get() {
                return waited;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let reads = async {
        eventually("discovery is asked", || server.faults().hits(held[0]) > 0).await;
        is_asked.set(true);
        for _ in 0..20 {
            let before = through.daemon.reads.metrics().local();
            assert_eq!(names(&client.json(&configmaps).await), ["one"]);
            assert_eq!(names(&client.json(&path("used.example.com", "things")).await), [""; 0]);
            assert_eq!(through.daemon.reads.metrics().local(), before + 2, "from the caches");
        }
        let asked = held.map(|held| server.faults().hits(held));
        assert!(asked[0] <= 2 && asked[1] == 0, "nobody has asked for them: {asked:?}");
        server.faults().clear();
    };
    let (waited, ()) = tokio::join!(waits, reads);
    assert_eq!(waited.unwrap().status.as_u16(), 200);
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
    let through = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
    through.ready().await;
    let client = Client::new(&through.url);
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

/// The documents of a real apiserver, damaged in what one group says.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_in_one_group_of_a_real_document_costs_that_group() {
    let cluster = Cluster::start().await;
    let direct = admin(&cluster);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let whole = direct.request(Method::GET, "/apis", &[("accept", accept)], "").await.json();
    let of_others = |document: &Value, group: &str| {
        let all = read_aggregated(document.to_string().as_bytes()).expect("a document");
        let others = all.into_iter().filter(|found| *found.gvr.group != *group && !found.gvr.group.is_empty());
        others.collect::<Vec<_>>()
    };
    let groups = whole["items"].as_array().unwrap().clone();
    assert!(groups.len() > 10, "{}", groups.len());
    for (n, group) in groups.iter().enumerate() {
        let name = group["metadata"]["name"].as_str().unwrap();
        let expected = of_others(&whole, name);
        assert!(expected.len() > 20, "{name}");
        let mut members = Vec::new();
        pointers(group, &format!("/items/{n}"), &mut members);
        // Every eleventh, so that each kind of member is among them.
        for at in members.iter().skip(n % 11).step_by(11) {
            for odd in [Value::Null, json!(7), json!({"odd": null})] {
                let mut document = whole.clone();
                *document.pointer_mut(at).unwrap() = odd.clone();
                assert_eq!(of_others(&document, name), expected, "{at} is {odd}");
            }
        }
    }
}

fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    let children: Vec<_> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(elements) => elements.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (name, value) in children {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        pointers(value, &at, all);
        all.push(at);
    }
}
