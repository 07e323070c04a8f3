//! Many clients, one upstream watch of each resource.

use informerd_sim::{Server, Verb};
use serde_json::json;

use super::fixtures::{config_map, pod};
use crate::support::client::{Client, rv};
use crate::support::informer::Informer;
use crate::support::{Through, eventually};

/// Path, and the resource as the simulated server counts it.
const RESOURCES: [(&str, &str); 5] = [
    ("/api/v1/configmaps", "configmaps"),
    ("/api/v1/pods", "pods"),
    ("/api/v1/services", "services"),
    ("/apis/coordination.k8s.io/v1/leases", "leases.coordination.k8s.io"),
    ("/apis/demo.informerd.io/v1/widgets", "widgets.demo.informerd.io"),
];

fn objects(n: usize) -> Vec<serde_json::Value> {
    let name = format!("o-{n}");
    let metadata = json!({"name": name, "namespace": "a"});
    vec![
        config_map("a", &name),
        pod("a", &name, "node-1"),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": []}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}),
        json!({"apiVersion": "demo.informerd.io/v1", "kind": "Widget", "metadata": metadata, "spec": {"color": "red"}}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_clients_of_five_resources_are_five_watches() {
    let server = Server::builder().start().await.unwrap();
    for object in (0..20).flat_map(objects) {
        server.create(object).unwrap();
    }
    let through = Through::before(&server, "").await;
    through.ready().await;

    // Half of the clients begin with a watch-list, half as older ones do: a list from the cache, then a watch.
    let mut informers = Vec::new();
    let mut watches = Vec::new();
    for n in 0..50 {
        let client = Client::new(&through.url);
        for (path, _) in RESOURCES {
            if n % 2 == 0 {
                informers.push((path, Informer::start(client.clone(), path, "")));
            } else {
                let list = client.json(&format!("{path}?resourceVersion=0&limit=500")).await;
                assert_eq!(list["items"].as_array().unwrap().len(), 20, "{path}");
                watches.push(client.watch(&format!("{path}?watch=1&resourceVersion={}", rv(&list))).await);
            }
        }
    }
    for (path, informer) in &informers {
        eventually(path, || informer.seen().state.len() == 20).await;
    }
    let started = server.counts();
    for (path, resource) in RESOURCES {
        assert_eq!(started.open_watches(resource), 1, "{path}");
        assert_eq!(started.requests(Verb::List, resource), 0, "{path}: the state came by the watch");
    }

    for object in (20..40).flat_map(objects) {
        server.create(object).unwrap();
    }
    for watch in &mut watches {
        for n in 20..40 {
            assert_eq!(watch.next_event().await["object"]["metadata"]["name"], format!("o-{n}"));
        }
    }
    for (path, informer) in &informers {
        eventually(path, || informer.seen().state.len() == 40).await;
        informer.assert_content();
        let seen = informer.seen();
        assert_eq!(
            (seen.lists, seen.resumes, seen.expired),
            (1, 0, 0),
            "{path}: nothing goes wrong, and nothing begins anew"
        );
    }
    // Clients that come back cost nothing either.
    drop(watches);
    for (path, _) in RESOURCES {
        let list = Client::new(&through.url).json(&format!("{path}?resourceVersion=0")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), 40, "{path}");
    }
    let after = server.counts();
    for (path, resource) in RESOURCES {
        assert_eq!(after.open_watches(resource), 1, "{path}");
        for verb in [Verb::List, Verb::Get, Verb::Watch, Verb::Probe] {
            assert_eq!(after.requests(verb, resource), started.requests(verb, resource), "{path}: {verb:?}");
        }
    }
    // One each, and the two kinds of definitions that discovery follows.
    assert_eq!(after.all_open_watches(), 5 + 2);
}
