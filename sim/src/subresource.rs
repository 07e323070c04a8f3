//! The few subresources that kubectl needs in a demo: scale and log.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::body::{self, Body};
use super::options;
use super::registry::Kind;
use super::stored::Stored;
use super::write::now;

/// The number of lines at the start of a log.
const LINES: u64 = 5;

/// The Scale of a deployment or replica set.
pub(super) fn scale(stored: &Stored) -> Value {
    let object = stored.value();
    let selector = object["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let selector: Vec<String> =
        selector.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {"replicas": object["spec"]["replicas"]},
        "status": {"replicas": object["status"]["replicas"].as_u64().unwrap_or(0), "selector": selector.join(",")},
    })
}

pub(super) fn can_scale(kind: &Kind) -> bool {
    matches!(&*kind.id, "deployments.apps" | "replicasets.apps")
}

/// Returns a few lines of text. With `follow`, another line follows each second.
pub(super) fn log(stored: &Stored, query: &str) -> Response<Body> {
    let name = stored.key.name().to_owned();
    let line = move |number: u64| {
        Bytes::from(format!(
            "{{\"time\":\"{}\",\"level\":\"info\",\"pod\":\"{name}\",\"msg\":\"served {number} requests\"}}\n",
            now()
        ))
    };
    let follow = options::pairs(query).iter().any(|(name, value)| name == "follow" && value != "false" && value != "0");
    let first: Vec<Bytes> = (1..=LINES).map(&line).collect();
    let rest = stream::unfold(LINES, move |number| {
        let next = line(number + 1);
        async move {
            if !follow {
                return None;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((next, number + 1))
        }
    });
    body::typed(StatusCode::OK, "text/plain", body::streamed(stream::iter(first).chain(rest)))
}
