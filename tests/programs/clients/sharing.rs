//! What many clients cost the kube-apiserver: counted by itself, in its metrics and, request by request, in its audit
//! log, which names the user agents.

#![allow(clippy::expect_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::daemon::Daemon;
use super::ledger::State;
use super::raw::{self, RawWatch};
use crate::cluster::Cluster;
use crate::process;
use crate::support::tied;

/// GROUP/VERSION/RESOURCE, path and how `judge informer` looks at it.
const RESOURCES: [(&str, &str, &[&str]); 5] = [
    ("v1/pods", "/api/v1/pods", &["--mode", "typed", "--protobuf"]),
    ("v1/configmaps", "/api/v1/configmaps", &["--mode", "typed", "--watch-list=false"]),
    ("v1/services", "/api/v1/services", &["--mode", "dynamic"]),
    (
        "coordination.k8s.io/v1/leases",
        "/apis/coordination.k8s.io/v1/leases",
        &["--mode", "dynamic", "--watch-list=false"],
    ),
    ("discovery.k8s.io/v1/endpointslices", "/apis/discovery.k8s.io/v1/endpointslices", &["--mode", "metadata"]),
];

const CLIENTS: usize = 50;

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, verbs: [list, watch]}]
";

/// One entry of the audit log.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "auditID")]
    id: String,
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    #[serde(default)]
    user_agent: String,
}

/// A cluster that writes an audit log, and where.
pub(crate) async fn audited_cluster(dir: &Path) -> (Cluster, PathBuf) {
    let (policy, log) = (dir.join("policy.yaml"), dir.join("audit.log"));
    std::fs::write(&policy, POLICY).expect("the policy can be written");
    let flags = [
        format!("--apiserver-flag=audit-policy-file={}", policy.display()),
        format!("--apiserver-flag=audit-log-path={}", log.display()),
    ];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    (Cluster::start_with(&flags).await, log)
}

/// 50 clients of five resources each, half of them client-go's informers and half bare watches of both kinds.
pub(crate) async fn measure(cluster: &Cluster, log: &Path) {
    let direct = raw::client(cluster.admin()).await;
    for resource in ["pods", "configmaps", "services", "leases", "endpointslices"] {
        cluster.churn(&["--resource", resource, "--ops", "12", "--objects", "8"]).await;
    }
    // kube-apiserver watches some of these for itself.
    let baseline = open_watches(&direct).await;
    let daemon = Daemon::start(cluster.admin()).await;
    let client = raw::client(&daemon.http).await;

    let mut informers = Vec::new();
    let mut watches = Vec::new();
    for (resource, path, modes) in RESOURCES {
        let mut command = tied::command(process::judge().await);
        command.arg("informer").arg("--kubeconfig").arg(&daemon.http).args(["--resource", resource]).args(modes);
        command.arg(format!("--count={}", CLIENTS / 2));
        informers.push(Client::start(resource.to_owned(), CLIENTS / 2, command));
        for at in 0..CLIENTS / 2 {
            let query = ["?watch=true", "?watch=true&resourceVersion=0", STREAMING_LIST][at % 3];
            watches.push((path, RawWatch::start(&client, &format!("{path}{query}")).await));
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    for informer in &informers {
        informer.synced(deadline).await.unwrap_or_else(|error| panic!("{error}"));
    }

    // From here on everything is warm: changes, and as many clients once more.
    let warm = entries(log).len();
    for resource in ["pods", "configmaps", "services", "leases", "endpointslices"] {
        cluster.churn(&["--resource", resource, "--ops", "40", "--objects", "8", "--seed", "2"]).await;
    }
    for (_, path, _) in RESOURCES {
        for at in 0..10 {
            let query = ["?watch=true", "?watch=true&resourceVersion=0", STREAMING_LIST][at % 3];
            watches.push((path, RawWatch::start(&client, &format!("{path}{query}")).await));
            let (status, body) = raw::get(&client, &format!("{path}?resourceVersion=0")).await;
            assert_eq!(status, StatusCode::OK, "{body}");
        }
    }

    // Everybody ends with the same objects, or the savings would be worth nothing.
    for ((resource, path, _), informer) in RESOURCES.iter().zip(&informers) {
        let state = raw::listed(&raw::get(&direct, path).await.1).0;
        informer.holds(&state, deadline).await.unwrap_or_else(|error| panic!("{error}"));
        for (_, watch) in watches.iter().filter(|(watched, _)| watched == path) {
            while watch.ledger(State::new()).last() != state {
                assert!(Instant::now() < deadline, "a watch of {resource} does not catch up");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }

    let open = open_watches(&direct).await;
    let mine = |path: &str, uri: &str| uri.split('?').next() == Some(path);
    let log = entries(log);
    let mut upstream = 0;
    let metrics = daemon.metrics().await;
    for (resource, path, _) in RESOURCES {
        let name = resource.rsplit('/').next().unwrap_or_default();
        let at = |counts: &BTreeMap<String, i64>| counts.get(name).copied().unwrap_or_default();
        // One for each encoding that somebody asked for.
        let encodings = watchers_by_encoding(&metrics, name);
        upstream += encodings.len();
        let expected = at(&baseline) + i64::try_from(encodings.len()).expect("two at most");
        assert_eq!(at(&open), expected, "upstream watches of {name}, by the apiserver's metrics\n{metrics}");
        if PROTOBUF.contains(&name) {
            assert_eq!(encodings.get("protobuf"), Some(&(CLIENTS / 2)), "informers of {name}\n{metrics}");
        }

        // The audit log says of each whose it is. Probes of freshness are watches of a few seconds at most.
        let opened = log.iter().filter(|entry| entry.verb == "watch" && entry.stage == "ResponseStarted");
        let ended = |id: &str| log.iter().any(|entry| entry.id == id && entry.stage == "ResponseComplete");
        let still: Vec<_> = opened
            .filter(|entry| mine(path, &entry.uri) && !is_apiserver(entry) && !is_probe(entry) && !ended(&entry.id))
            .collect();
        assert_eq!(still.len(), encodings.len(), "upstream watches of {name}, by the audit log: {still:#?}");
        assert!(still.iter().all(|entry| entry.user_agent.starts_with("informerd/")), "{still:?} watch for themselves");

        let lists: Vec<_> = log[warm..]
            .iter()
            .filter(|entry| entry.verb == "list" && mine(path, &entry.uri) && !is_apiserver(entry))
            // This test's own, directly at the server.
            .filter(|entry| entry.uri != path)
            .filter(|entry| !is_probe(entry))
            .collect();
        assert!(lists.is_empty(), "lists of {name} upstream: {lists:#?}");
    }
    let probes = log.iter().filter(|entry| entry.user_agent.starts_with("informerd/") && is_probe(entry)).count();
    let asked = watches.len() + CLIENTS / 2 * RESOURCES.len();
    println!("{asked} clients: {upstream} upstream watches, {probes} probes of freshness");
    assert!(probes < asked, "{probes} probes for {asked} clients: they are not shared");
}

const STREAMING_LIST: &str =
    "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

/// Those whose informers ask for protobuf first.
const PROTOBUF: &[&str] = &["pods", "endpointslices"];

/// How many clients watch a resource in each encoding that the daemon holds it in.
fn watchers_by_encoding<'m>(metrics: &'m str, resource: &str) -> BTreeMap<&'m str, usize> {
    let label = format!("resource=\"{resource}\"");
    let series = metrics.lines().filter_map(|line| line.strip_prefix("informerd_cache_watchers{")?.split_once("} "));
    let of_resource = series.filter(|(labels, _)| labels.contains(&label));
    of_resource
        .filter_map(|(labels, count)| {
            let encoding = labels.split("encoding=\"").nth(1)?.split('"').next()?;
            Some((encoding, count.parse::<f64>().ok()? as usize))
        })
        .collect()
}

/// Open watches by resource, as kube-apiserver counts them.
pub(crate) async fn open_watches(direct: &kube::Client) -> BTreeMap<String, i64> {
    let (status, metrics) = raw::get(direct, "/metrics").await;
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

fn entries(log: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(log).expect("an audit log");
    // The last line may be half written.
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn is_apiserver(entry: &Entry) -> bool {
    entry.user_agent.starts_with("kube-apiserver/")
}

/// A list of one object, of as many as a cache holds and a few more (never the page of a reflector's list), or a watch
/// of a few seconds, by which informerd learns whether it lags.
fn is_probe(entry: &Entry) -> bool {
    let number = |name: &str| {
        let value = entry.uri.split(['?', '&']).find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse::<u64>().ok())
    };
    match entry.verb.as_str() {
        "list" => number("limit").is_some_and(|limit| limit < 500),
        _ => number("timeoutSeconds").is_some_and(|timeout| timeout <= 10),
    }
}
