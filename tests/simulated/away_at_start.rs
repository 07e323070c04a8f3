//! A daemon that starts with snapshots while the apiserver does not answer. Nothing is served from them before the apiserver has
//! confirmed them, also with `whileAway: serve`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use informerd_sim::{Effect, Fault, FaultId, Server};
use serde_json::json;

use crate::support::life::Life;
use crate::support::{eventually, unauthenticated, until};
use crate::{CONFIG_MAPS, config_map};

const JSON: &str = "application/json";

fn silence(server: &Server) -> FaultId {
    let id = server.faults().add(Fault::always(Effect::Reset));
    server.faults().reset_connections();
    id
}

fn snapshots(dir: &Path) -> usize {
    let names = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".snapshot")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_from_disk_is_served_before_the_apiserver_has_confirmed_it() {
    let server = Server::builder().start().await.unwrap();
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})).unwrap();
    server.create(config_map("one")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("snapshots");
    let resources = "[{resource: configmaps, pin: true}]";
    let yaml = format!("snapshots: {{dir: {}}}\nwhileAway: serve\nresources: {resources}", dir.display());
    let start = async || Life::begin(unauthenticated(&server.url()), &yaml, |_| {}).await;
    let first = start().await;
    first.through.ready().await;
    eventually("the snapshot is written", || snapshots(&dir) == 1).await;
    first.kill().await;

    let away = silence(&server);
    server.create(config_map("unseen")).unwrap();
    let life = start().await;
    for path in [
        "/api/v1/configmaps",
        "/api/v1/configmaps?resourceVersion=0",
        "/api/v1/configmaps?watch=1&resourceVersion=0",
        "/api/v1/namespaces/a/configmaps/one",
        "/api/v1/namespaces/a/configmaps/one?resourceVersion=0",
    ] {
        life.get(path, JSON).await.assert_unanswered(path);
    }
    assert!(!life.through.context.readiness.is_ready());
    assert_eq!(life.count("informerd_snapshots_loaded_total", &[]).await, 0);

    server.faults().remove(away);
    life.through.ready().await;
    let list = life.get(CONFIG_MAPS, JSON).await;
    assert_eq!((list.status.as_u16(), list.warnings().len()), (200, 0));
    assert_eq!(list.json()["items"].as_array().unwrap().len(), 2, "{}", list.text());
    assert_eq!(life.count("informerd_snapshots_loaded_total", &[]).await, 1);

    // What is confirmed is served through the next outage.
    silence(&server);
    until("the last state is served", async || life.get(CONFIG_MAPS, JSON).await.is_old()).await;
    life.kill().await;
}
