//! Objects and requests that several tests use.

use std::time::Duration;

use informerd_sim::{Effect, Fault, Server};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::Through;
use crate::support::within;

pub(super) const CONFIG_MAPS: &str = "/api/v1/configmaps";
pub(super) const JSON: (&str, &str) = ("content-type", "application/json");

pub(crate) fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {}})
}

pub(super) fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "image"}]}, "status": {"phase": "Running"},
    })
}

/// A page of the admin listener.
pub(super) async fn admin(through: &Through, path: &str) -> (u16, String) {
    let answer = through.admin().get(path).await;
    (answer.status.as_u16(), answer.text())
}

/// The next `times` requests for this resource are answered late, so that the read that starts its informer waits for it.
pub(crate) fn syncs_late(server: &Server, resource: &str, times: u32) {
    server.faults().add(Fault::times(times, Effect::Delay(Duration::from_millis(100))).on(resource));
}

/// How many informers run, by their resource.
pub(super) fn informers(through: &Through) -> Vec<String> {
    through.daemon.factory.informers().iter().map(|informer| informer.key().to_string()).collect()
}

/// What is said of reads: the count of `(plan, reason)`.
pub(super) fn reads(through: &Through, plan: &str, reason: &str) -> u64 {
    let series = through.daemon.reads.metrics().series();
    series.iter().find(|(of, why, _)| *of == plan && *why == reason).map_or(0, |(_, _, count)| *count)
}

/// A connection that says exactly this and reads what it wants.
pub(super) struct RawConnection {
    pub stream: TcpStream,
    pub read: Vec<u8>,
}

impl RawConnection {
    pub(super) async fn open(url: &str) -> Self {
        let address = url.strip_prefix("http://").unwrap();
        Self { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    pub(super) async fn say(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until this text is there; returns everything read so far.
    pub(super) async fn until(&mut self, text: &str) -> String {
        loop {
            let read = String::from_utf8_lossy(&self.read).into_owned();
            if read.contains(text) {
                return read;
            }
            let more = within(&format!("{text:?} after {read:?}"), self.stream.read_buf(&mut self.read)).await;
            assert_ne!(more.unwrap_or(0), 0, "closed without {text:?}: {read:?}");
        }
    }
}
