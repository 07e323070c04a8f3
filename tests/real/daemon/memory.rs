//! Memory that is not enough: what does not fit is forwarded, and the process lives.

use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, admin, config_map, pod, reads};
use crate::support::Through;
use crate::support::client::{Client, names};

const PODS: &str = "/api/v1/pods";

fn large(name: &str, bytes: usize) -> Value {
    let mut object = config_map("a", name);
    object["data"] = json!({"x": "x".repeat(bytes)});
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_forwarded_with_the_reason_and_readiness_does_not_wait_for_it() {
    let objects = (0..20).map(|i| large(&format!("m{i:02}"), 200 << 10)).chain([pod("a", "one", "n1")]);
    let yaml = "limits: {memory: 2Mi}\nnotSynced: {wait: 60s}\nexplainHeader: true\n\
        resources: [{resource: configmaps, pin: true}, {resource: pods, pin: true}]\n";
    let (server, through, client) = Through::simulated(objects, yaml).await;
    through.ready().await;
    // Not after a minute of waiting, but at once.
    let answer = client.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(answer.headers["x-informerd-plan"].to_str().unwrap(), "forwarded; reason=memory");
    let direct = Client::new(&server.url()).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(answer.text(), direct.text(), "untouched");
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    assert_eq!(watch.next_event().await["type"], "ADDED");
    assert_eq!(reads(&through, "forward", "memory"), 2);
    let pods = client.get(&format!("{PODS}?resourceVersion=0")).await;
    assert_eq!(names(&pods.json()), ["one"]);
    assert_eq!(reads(&through, "forward", "memory"), 2, "what fits is served");

    let (_, text) = admin(&through, "/debug/caches").await;
    let shown: Value = serde_json::from_str(&text).unwrap();
    let cache = &shown["caches"][0];
    assert_eq!(cache["resource"], "configmaps");
    assert_eq!((&cache["state"], &cache["ready"]), (&json!("refused"), &json!(false)));
    assert!(cache["lastError"].as_str().unwrap().contains("of 2 MiB free for caches"), "{cache}");
    let (_, metrics) = admin(&through, "/metrics").await;
    let labels = r#"group="",version="v1",resource="configmaps",namespace="",selector="",encoding="json""#;
    assert!(metrics.contains(&format!("informerd_cache_refused{{{labels}}} 1")), "{metrics}");
    assert!(metrics.contains("informerd_caches_limit_bytes 2097152"), "{metrics}");
}
