//! `informerd explain` foretells what happens, and does nothing.

use http::Method;
use serde_json::Value;

use super::fixtures::{config_map, pod, syncs_late};
use crate::grpc::fixtures::{all, client as client_of, list, list_of};
use crate::support::client::Client;
use crate::support::metrics::sum;
use crate::support::{Through, until};

const CONFIG: &str = "
explainHeader: true
consistentReads: probe
resources: [{resource: configmaps, consistentReads: upstream}]
";

/// `forwarded; reason=encoding`.
async fn foretold(through: &Through, target: &str, headers: &[(&str, &str)]) -> String {
    let answer = through.admin().request(Method::GET, &format!("/explain{target}"), headers, "").await;
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    let answer = answer.json();
    let text = |key: &str| answer[key].as_str().unwrap_or_else(|| panic!("{key}: {answer}")).to_owned();
    assert!(!text("cause").is_empty(), "{answer}");
    match text("reason").as_str() {
        "" => text("plan"),
        reason => format!("{}; reason={reason}", text("plan")),
    }
}

/// The same, as the answer says it.
async fn told(through: &Through, target: &str, headers: &[(&str, &str)]) -> String {
    let answer = Client::new(&through.url).request(Method::GET, target, headers, "").await;
    let plan = answer.headers["x-informerd-plan"].to_str().unwrap().to_owned();
    let (plan, revision) = plan.split_once("; revision=").map_or((&*plan, None), |(plan, rv)| (plan, Some(rv)));
    let is_cached = plan.starts_with("served") || plan.starts_with("waited");
    let revision = revision.and_then(|rv| rv.split(';').next()?.parse::<u64>().ok());
    assert_eq!(revision.is_some(), is_cached, "{target}: {plan}");
    plan.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_foretold_happens() {
    let (server, through, _) = Through::simulated([pod("a", "p", "n"), config_map("a", "one")], CONFIG).await;
    through.ready().await;
    let json: [(&str, &str); 1] = [("accept", "application/json")];
    let yaml = [("accept", "application/yaml")];

    // Not even an informer that would be needed is started.
    let first = "/api/v1/pods?resourceVersion=0";
    let (requests, served) = (server.requests().len(), through.daemon.reads.metrics().local());
    assert_eq!(foretold(&through, first, &json).await, "waited; reason=not_synced");
    let asked = server.requests().split_off(requests);
    // The daemon's own watches of definitions may only be starting.
    assert!(asked.iter().all(|request| !request.target.contains("/pods")), "{asked:?}");
    assert!(through.daemon.factory.informers().is_empty());
    syncs_late(&server, "pods", 1);
    assert_eq!(told(&through, first, &json).await, "waited; reason=not_synced");

    for (target, headers, expected) in [
        (first, &json, "served"),
        ("/api/v1/pods?watch=1&resourceVersion=0&timeoutSeconds=1", &json, "served"),
        ("/api/v1/pods", &json, "waited; reason=not_fresh"),
        ("/api/v1/namespaces/a/configmaps/one", &json, "forwarded; reason=consistent"),
        ("/api/v1/namespaces/a/pods/p?resourceVersion=0", &json, "served"),
        ("/api/v1/namespaces/a/pods/q?resourceVersion=0", &json, "refused; reason=not_found"),
        ("/api/v1/pods?resourceVersion=0", &yaml, "forwarded; reason=encoding"),
        ("/api/v1/pods?limit=x", &json, "forwarded; reason=invalid"),
        ("/api/v1/pods?labelSelector=%21%21", &json, "forwarded; reason=invalid"),
        ("/api/v1/pods?resourceVersion=1&resourceVersionMatch=Exact", &json, "forwarded; reason=outside_window"),
        ("/api/v1/secrets", &json, "forwarded; reason=excluded"),
        ("/api/v1/nothings", &json, "forwarded; reason=not_readable"),
        ("/version", &json, "forwarded"),
    ] {
        let reads = through.daemon.reads.metrics().series();
        assert_eq!(foretold(&through, target, headers).await, expected, "{target}");
        assert_eq!(through.daemon.reads.metrics().series(), reads, "{target} was counted");
        assert_eq!(told(&through, target, headers).await, expected, "{target}");
    }
    assert!(through.daemon.reads.metrics().local() > served);
    let outside = through.admin().get("/explained").await;
    assert_eq!(outside.status, 404);
}

/// What the apiserver was spared is what clients asked for, less every request that it saw.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_spared_is_the_difference_to_what_the_apiserver_saw() {
    let (server, through, client) =
        Through::simulated([pod("a", "p", "n")], "resources:\n- {resource: pods, pin: true}\n").await;
    through.ready().await;
    let spared = async || -> Value { through.admin().get("/status.json").await.json()["spared"].clone() };
    let before = spared().await;
    assert!(before["requests"].as_i64().unwrap() < 0, "{before}");
    assert!(before["bytes"].as_i64().unwrap() < 0 && before["events"].as_i64().unwrap() < 0, "{before}");

    let mut watches = Vec::new();
    for _ in 0..50 {
        watches.push(client.watch("/api/v1/pods?watch=1&resourceVersion=0").await);
    }
    for watch in &mut watches {
        assert!(watch.next().await.unwrap().is_some());
    }
    for n in 0..10 {
        let mut changed = pod("a", "p", "n");
        changed["metadata"]["labels"] = serde_json::json!({"n": n.to_string()});
        server.update(changed).unwrap();
    }
    for watch in &mut watches {
        for _ in 0..10 {
            assert!(watch.next().await.unwrap().is_some());
        }
    }
    // One that is not there, one that is forwarded, a write, and one by gRPC.
    assert_eq!(client.get("/api/v1/namespaces/a/pods/q?resourceVersion=0").await.status, 404);
    let answer = client.get("/api/v1/secrets").await;
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.contains_key("x-informerd-plan"), "it was not asked for");
    client.write(Method::POST, "/api/v1/namespaces/a/configmaps", &config_map("a", "new")).await;
    list(&mut client_of(&through).await, list_of(all("pods"))).await;
    // A request of informerd's own may come at any time: what is read between two equal counts is of that count.
    let asked = || 50 + 4 - i64::try_from(server.requests().len()).unwrap();
    let mut after = Value::Null;
    until("requests are those of clients less those that the apiserver saw", async || {
        let expected = asked();
        let text = through.context.metrics.encode();
        after = spared().await;
        let counted = sum(&text, "informerd_spared_requests", &[]);
        asked() == expected && counted == expected as f64 && after["requests"].as_i64() == Some(expected)
    })
    .await;
    // Each watch was sent the object and ten changes.
    let received = 550 - after["events"].as_i64().unwrap();
    assert!((10..25).contains(&received), "{after}");
    assert!(after["bytes"].as_i64().unwrap() > 50_000, "{after}");
    assert!(after["deliveriesPerEvent"].as_f64().unwrap() > 20.0, "{after}");
}
