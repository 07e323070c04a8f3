//! Watches that begin at a revision that the daemon has not seen, and a list that takes the place of the events that it
//! missed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use http::Method;
use informerd::upstream::client::ConfigSource;
use serde_json::json;

use crate::cluster::Cluster;
use crate::recovery::Real;
use crate::support::client::{Client, names, rv};
use crate::support::relay::Loss;
use crate::support::{Through, until, within};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn apply(direct: &Client, name: &str, app: &str) -> u64 {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}}, "data": {},
    });
    let path = format!("{CONFIG_MAPS}/{name}?fieldManager=test&force=true");
    let headers = [("content-type", "application/apply-patch+yaml")];
    let answer = direct.request(Method::PATCH, &path, &headers, &object.to_string()).await;
    assert!(answer.status.is_success(), "{}", answer.text());
    rv(&answer.json())
}

/// Without a cache of its own, the apiserver has the events that etcd has: after a compaction, none.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_began_in_the_gap_of_a_relist_ends() {
    let cluster = Cluster::start_with(&["--apiserver-flag=watch-cache=false"]).await;
    let Real { cluster, relay, direct, kubeconfig } = Real::before(Arc::new(cluster)).await;
    let daemon = Through::start(ConfigSource::kubeconfig(&kubeconfig), "").await;
    daemon.ready().await;
    let through = Client::new(&daemon.url);
    let kept = apply(&direct, "kept", "x").await;
    let cached = format!("{CONFIG_MAPS}?resourceVersion=0");
    until("the daemon has the object", async || rv(&through.json(&cached).await) >= kept).await;

    relay.close().await;
    apply(&direct, "gone", "x").await;
    apply(&direct, "kept", "y").await;
    let start = rv(&direct.json(CONFIG_MAPS).await);
    let watch = |selection: &str, from: u64| {
        let options = "allowWatchBookmarks=true&timeoutSeconds=300";
        format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}&{options}{selection}")
    };
    let selections = ["", "&labelSelector=app%3Dy", "&fieldSelector=metadata.name%3Dgone"];
    let mut watches = Vec::new();
    for selection in selections {
        watches.push(through.watch(&watch(selection, start)).await);
    }
    direct.write(Method::DELETE, &format!("{CONFIG_MAPS}/gone"), &json!(null)).await;
    apply(&direct, "kept", "z").await;
    cluster.compact().await;
    relay.lose(Loss::None);

    for (watch, selection) in watches.iter_mut().zip(selections) {
        let next = within("the watch ends", watch.next()).await.unwrap();
        assert!(next.is_none(), "{selection}: {}", next.unwrap());
    }
    for selection in selections {
        let mut again = through.watch(&watch(selection, start)).await;
        let error = within("the answer to the next watch", again.next()).await.unwrap().expect("an error");
        assert_eq!((error["type"].as_str(), error["object"]["code"].as_u64()), (Some("ERROR"), Some(410)), "{error}");
    }
    let list = through.json(&cached).await;
    assert!(names(&list).contains(&"kept") && !names(&list).contains(&"gone"), "{list}");
    // One that begins where the list is gets all that follows.
    let mut watch = through.watch(&watch("", rv(&list))).await;
    let changed = apply(&direct, "kept", "y").await;
    let event = within("the next event", watch.next()).await.unwrap().expect("an event");
    assert_eq!((event["type"].as_str(), rv(&event["object"])), (Some("MODIFIED"), changed));
}
