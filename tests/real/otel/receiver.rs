//! The OpenTelemetry Collector's own OTLP receiver (`receiver/`, made by `tests/clients/prepare`), and what it has taken.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin};

use crate::process::prepared;
use crate::support::{eventually, tied, within};

/// A span as its sender has told it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// `service.name` of the sender.
    pub service: String,
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    /// Trace and span.
    pub links: Vec<(String, String)>,
}

/// It ends with its stdin.
pub(super) struct Receiver {
    /// `127.0.0.1:port`, by protocol: `grpc` and `http`.
    pub addresses: BTreeMap<String, String>,
    messages: Arc<Mutex<Vec<Value>>>,
    _stdin: ChildStdin,
    _child: Child,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn attributes(pairs: &Value) -> BTreeMap<String, String> {
    let of = |value: &Value| value.as_object().and_then(|value| value.values().next()).cloned().unwrap_or_default();
    let told = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = pairs.as_array().into_iter().flatten();
    pairs.map(|pair| (text(&pair["key"]), told(of(&pair["value"])))).collect()
}

fn each<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

// === impl Receiver ===

impl Receiver {
    /// With TLS if a certificate and its key are named.
    pub(super) async fn start(tls: Option<[&Path; 2]>) -> Self {
        let mut child = tied::command(prepared("receiver").await.remove(0))
            .args(tls.into_iter().flatten())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = within("the receiver listens", lines.next_line()).await.unwrap().expect("the receiver listens");
        let messages = Arc::<Mutex<Vec<Value>>>::default();
        let kept = messages.clone();
        tokio::spawn(async move {
            while let Some(line) = lines.next_line().await.unwrap() {
                kept.lock().push(serde_json::from_str(&line).unwrap());
            }
        });
        Self { addresses: serde_json::from_str(&first).unwrap(), messages, _stdin: stdin, _child: child }
    }

    pub(super) fn spans(&self) -> Vec<Seen> {
        let mut all = Vec::new();
        for message in &*self.messages.lock() {
            for resource in each(&message["traces"], "resourceSpans") {
                let service = attributes(&resource["resource"]["attributes"]).remove("service.name").unwrap();
                for span in each(resource, "scopeSpans").flat_map(|scope| each(scope, "spans")) {
                    let links = each(span, "links").map(|link| (text(&link["traceId"]), text(&link["spanId"])));
                    all.push(Seen {
                        service: service.clone(),
                        trace: text(&span["traceId"]),
                        id: text(&span["spanId"]),
                        parent: text(&span["parentSpanId"]),
                        name: text(&span["name"]),
                        attributes: attributes(&span["attributes"]),
                        links: links.collect(),
                    });
                }
            }
        }
        all
    }

    /// Waits for a span.
    pub(super) async fn span(&self, what: &str, is: impl Fn(&Seen) -> bool) -> Seen {
        eventually(what, || self.spans().iter().any(&is)).await;
        self.spans().into_iter().find(is).unwrap()
    }

    /// The last reading of a metric: its kind, its points.
    pub(super) fn metric(&self, name: &str) -> Option<(String, Vec<Value>)> {
        let messages = self.messages.lock();
        let resources = messages.iter().rev().flat_map(|message| each(&message["metrics"], "resourceMetrics"));
        let mut metrics = resources.flat_map(|r| each(r, "scopeMetrics")).flat_map(|scope| each(scope, "metrics"));
        let metric = metrics.find(|metric| metric["name"] == name)?;
        let kinds = ["gauge", "sum", "histogram"];
        let kind = kinds.into_iter().find(|kind| metric.get(kind).is_some())?;
        let data = &metric[kind];
        if kind == "sum" {
            // Cumulative.
            assert_eq!((&data["isMonotonic"], &data["aggregationTemporality"]), (&true.into(), &2.into()), "{name}");
        }
        Some((kind.to_owned(), each(data, "dataPoints").cloned().collect()))
    }
}
