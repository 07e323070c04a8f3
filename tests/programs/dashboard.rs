//! The dashboard, asked of what an informerd at work says: promtool evaluates every query, and each shows something.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::alerts::{promtool, write};
use super::examples::{Program, churn};
use crate::cluster::Cluster;
use crate::support::{read, until};
use crate::world::World;

const DASHBOARD: &str = "manifests/components/dashboard/informerd.json";
/// The listeners in this order: one that trusts, one that asks the cluster.
const YAML: &str = "listen: ['http://127.0.0.1:0', 'delegated+https://127.0.0.1:0']\nconsistentReads: probe\n";
const CONFIG_MAPS: &str = "/api/v1/namespaces/one/configmaps";
/// Whoever may list, and whoever may not.
const RIGHTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lister}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lister}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lister}
subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]
"#;

/// Series with their samples, a minute apart.
type Series = BTreeMap<String, Vec<String>>;

/// All queries, each with what Grafana puts in for its variables.
fn queries() -> BTreeSet<String> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut queries = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row") {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$__rate_interval", "5m").replace("$instance", "a");
            assert!(!query.contains('$'), "an unknown variable in {query}");
            assert!(queries.insert(query.clone()), "asked twice: {query}");
        }
    }
    queries
}

/// Adds a scrape, as Prometheus would name its series.
fn scraped(text: &str, into: &mut Series) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // Behind the sample there may be an exemplar.
        let line = line.split(" # ").next().unwrap_or(line);
        let (name, value) = line.rsplit_once(' ').expect("a sample");
        let series = match name.split_once('{') {
            Some((name, labels)) => format!("{name}{{instance=\"a\",{labels}"),
            None => format!("{name}{{instance=\"a\"}}"),
        };
        into.entry(series).or_default().push(value.to_owned());
    }
}

/// All that a daemon does, so that each panel has something to show.
async fn worked(World { daemon, direct, through: client, .. }: &World, token: &str) {
    churn(direct, 12).await;
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    assert!(watch.next_line().await.unwrap().is_some());
    churn(direct, 12).await;
    assert!(watch.next_line().await.unwrap().is_some());
    assert_eq!(client.get(CONFIG_MAPS).await.status, 200);
    // Forwarded, and not answered as one hopes.
    assert_eq!(client.get("/api/v1/namespaces/one/secrets/none").await.status, 404);
    daemon.bearer(1, token).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_dashboard_shows_what_a_daemon_does() {
    let cluster = Cluster::start().await;
    cluster.namespace("one").await;
    cluster.apply(RIGHTS).await;
    let world = World::before(cluster, YAML).await;
    let controller = Program::start_at("go", "controller", &world.daemon.url, &["--namespace", "one"]).await;
    let mut series = Series::new();
    // What a scrape has for the first time has no rate yet, so everything happens twice.
    for token in ["reader-token", "nobody-token"] {
        let counted = controller.lines().len();
        worked(&world, token).await;
        until("a key is handled", async || controller.lines().len() > counted).await;
        scraped(&world.daemon.admin().metrics().await, &mut series);
    }
    shown(&series, &queries());
}

/// Has promtool evaluate the queries over the series. Each has to give at least one number.
fn shown(series: &Series, queries: &BTreeSet<String>) {
    assert!(series.len() > 100 && queries.len() > 60, "{} series, {} queries", series.len(), queries.len());
    let series: Vec<_> =
        series.iter().map(|(name, values)| json!({"series": name, "values": values.join(" ")})).collect();
    let evaluated: Vec<_> = queries
        .iter()
        .map(|query| {
            // Nothing is greater than nothing, nor than what is no number.
            let expression = format!("count(({query}) > -Inf) > bool 0");
            json!({"expr": expression, "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": 1}]})
        })
        .collect();
    let tests = json!({"evaluation_interval": "1m", "rule_files": [], "tests": [
        {"interval": "1m", "input_series": series, "promql_expr_test": evaluated},
    ]});
    let directory = tempfile::tempdir().unwrap();
    let tests = write(directory.path(), "dashboard.yaml", &tests);
    let said = promtool(&["test", "rules", &tests]);
    assert!(said.contains("SUCCESS"), "{said}");
}
