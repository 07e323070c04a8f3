//! Requests as they are written here, answered byte for byte.

#![allow(clippy::expect_used, clippy::panic, reason = "a test without its server is over")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use http::{Request, StatusCode};
use http_body_util::{BodyExt, Collected};
use informerd::lifecycle;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::ledger::{Change, Kind, Ledger, State};
use crate::support::client::{key, rv};

/// An open watch.
pub(crate) struct RawWatch {
    lines: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

pub(crate) async fn client(kubeconfig: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.expect("a kubeconfig that can be used");
    config.read_timeout = None;
    kube::Client::try_from(config).expect("a client")
}

/// The status and body of a GET for JSON.
pub(crate) async fn get(client: &kube::Client, path: &str) -> (StatusCode, String) {
    let (status, body) = get_as(client, path, "application/json").await;
    (status, String::from_utf8(body).expect("text is UTF-8"))
}

/// The status and body of a GET for a media type.
pub(crate) async fn get_as(client: &kube::Client, path: &str, accept: &str) -> (StatusCode, Vec<u8>) {
    let request = Request::get(path).header("accept", accept).body(kube::client::Body::empty());
    let response = client.send(request.expect("a request")).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    let status = response.status();
    let body = response.into_body().collect().await.unwrap_or_else(|error| panic!("{path}: {error}"));
    (status, body.to_bytes().to_vec())
}

/// What a list says is there, and its resourceVersion.
pub(crate) fn listed(body: &str) -> (State, u64) {
    let list: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("no list: {error}: {body}"));
    let items = list["items"].as_array().into_iter().flatten();
    (items.map(|item| (key(item), rv(item))).collect(), rv(&list))
}

/// Open watches by resource, as kube-apiserver counts them.
pub(crate) async fn open_watches(direct: &kube::Client) -> BTreeMap<String, i64> {
    let (status, metrics) = get(direct, "/metrics").await;
    assert_eq!(status, StatusCode::OK, "{metrics}");
    let mut open = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_longrunning_requests{")) {
        let Some((labels, count)) = line.rsplit_once("} ") else { continue };
        let resource = labels.split("resource=\"").nth(1).and_then(|rest| rest.split('"').next());
        if let (Some(resource), true) = (resource, labels.contains("verb=\"WATCH\"")) {
            *open.entry(resource.to_owned()).or_default() += count.parse::<f64>().expect("a number") as i64;
        }
    }
    open
}

fn is_bookmark(line: &str) -> bool {
    line.starts_with(r#"{"type":"BOOKMARK""#)
}

// === impl RawWatch ===

impl RawWatch {
    /// Opens a watch and collects its lines; panics unless it is answered with 200.
    pub(crate) async fn start(client: &kube::Client, path: &str) -> Self {
        let request = Request::get(path).header("accept", "application/json").body(kube::client::Body::empty());
        let response = client.send(request.expect("a request")).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let status = response.status();
        let mut body = response.into_body();
        if status != StatusCode::OK {
            let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
            panic!("{path}: {status} {}", String::from_utf8_lossy(&body));
        }
        let lines = Arc::new(Mutex::new(Vec::new()));
        let out = Arc::clone(&lines);
        let task = lifecycle::spawn("raw watch", async move {
            let mut rest = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                rest.extend_from_slice(&data);
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    out.lock().push(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
            }
        });
        Self { lines, task }
    }

    /// Its lines so far without bookmarks.
    fn events(&self) -> Vec<String> {
        self.lines.lock().iter().filter(|line| !is_bookmark(line)).cloned().collect()
    }

    /// The changes its events say, up to an error that ends it.
    pub(crate) fn ledger(&self, initial: State) -> Ledger {
        let mut changes = Vec::new();
        for line in self.events() {
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let kind = match event["type"].as_str() {
                Some("ADDED") => Kind::Added,
                Some("MODIFIED") => Kind::Modified,
                Some("DELETED") => Kind::Deleted,
                Some("ERROR") => break,
                _ => panic!("no event of a watch: {line}"),
            };
            changes.push(Change { rv: rv(&event["object"]), key: key(&event["object"]), kind });
        }
        Ledger { initial, changes }
    }
}

impl Drop for RawWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
