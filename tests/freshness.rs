//! What a read may be older than: nothing that this daemon has shown, unless the apiserver's store was restored.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use informerd::sim::Server;
use serde_json::{Value, json};
use support::Through;
use support::client::{Client, rv};

const CONFIG_MAPS: &str = "/api/v1/configmaps";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_served_again_after_the_store_was_restored() {
    let server = Server::builder().revision(1000).start().await.unwrap();
    server.create(config_map("one")).unwrap();
    let through = Through::before(&server, "").await;
    let client = Client::new(&through.url);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    // Forwarded: it shows a revision that the restored store is far from.
    let shown = rv(&client.json(CONFIG_MAPS).await);
    server.faults().rewind(500);
    server.restart(Duration::from_millis(50), true).await.unwrap();
    server.create(config_map("after-the-restore")).unwrap();
    let metrics = through.daemon.reads.metrics().clone();
    let before = metrics.local();
    let bound = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        if metrics.local() > before && rv(&list) < shown {
            assert!(list.to_string().contains("after-the-restore"), "{list}");
            break;
        }
        assert!(tokio::time::Instant::now() < bound, "every read is forwarded, 30 s after the restore");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consistent_read_never_shows_a_past_that_a_restore_has_undone() {
    let server = Server::builder().revision(1000).start().await.unwrap();
    server.create(config_map("undone")).unwrap();
    let through = Through::before(&server, "consistentReads: { list: probe }\n").await;
    let client = Client::new(&through.url);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    server.faults().rewind(500);
    // Before our own stream is back and tells.
    let list = client.json(CONFIG_MAPS).await;
    assert_eq!(rv(&list), rv(&Client::new(&server.url()).json(CONFIG_MAPS).await), "{list}");
}
