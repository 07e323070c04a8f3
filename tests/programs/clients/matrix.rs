//! Every client in every mode at every endpoint, started before and amid changes, checked against the server's own
//! account of them.

#![allow(clippy::expect_used, clippy::panic, reason = "test code")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use tokio::time::sleep;

use super::client::Client;
use super::daemon::Daemon;
use super::ledger::{Ledger, Line};
use super::scene::{self, PODS, RED, TARGETS, Target, WIDGETS};
use super::truth::{Truth, open_watches};
use crate::cluster::Cluster;
use crate::process::{self, prepared};
use crate::support::history::state;
use crate::support::{tied, until};
use crate::world::{PROTOBUF, admin};

/// Where clients go, and how they find it.
pub(crate) struct Endpoint {
    name: &'static str,
    kubeconfig: PathBuf,
}

/// A client to be started.
struct Plan {
    name: String,
    target: usize,
    informers: usize,
    words: Vec<String>,
    env: Option<(&'static str, &'static str)>,
}

// === impl Endpoint ===

impl Endpoint {
    pub(crate) fn new(name: &'static str, kubeconfig: &Path) -> Self {
        Self { name, kubeconfig: kubeconfig.to_owned() }
    }
}

/// Runs everything at all `endpoints`, which are those of `daemon`, if there is one. Panics with all that was wrong.
/// Returns what each informer printed, with what it should have seen.
pub(crate) async fn run(
    cluster: &Cluster,
    endpoints: &[Endpoint],
    daemon: Option<&Daemon>,
) -> Vec<(String, Ledger, Vec<Line>)> {
    // The known good path needs less.
    let is_full = daemon.is_some();
    let direct = admin(cluster);
    scene::set_up(cluster).await;
    // Something to begin with.
    scene::churn(&direct, 20, 1, Duration::ZERO).await;
    let open = || join_all(["pods", "configmaps", "widgets"].map(|of| open_watches(&direct, of)));
    let baseline = open().await;
    if let Some(daemon) = daemon {
        warm(daemon).await;
    }
    let mut truths = Vec::new();
    for target in TARGETS {
        truths.push(Truth::start(&direct, target.path).await);
    }

    let mut plans = Vec::new();
    for (at, endpoint) in endpoints.iter().enumerate() {
        plans.extend(plan(endpoint, at, is_full).await);
    }
    // Half of them see all changes come, the others start while they come.
    let (early, late): (Vec<_>, Vec<_>) = plans.into_iter().enumerate().partition(|(at, _)| (at / 2) % 2 == 0);
    let mut wrong = Vec::new();
    let mut clients: Vec<_> = early.into_iter().map(|(_, plan)| plan.start()).collect();
    for (_, client) in &clients {
        wrong.extend(client.synced().await.err());
    }

    let (ops, pause) = if is_full { (300, 25) } else { (100, 15) };
    let churn = scene::churn(&direct, ops, 2, Duration::from_millis(pause));
    let start_late = async {
        sleep(Duration::from_millis(300)).await;
        let mut clients = Vec::new();
        for (_, plan) in late {
            clients.push(plan.start());
            sleep(Duration::from_millis(100)).await;
        }
        clients
    };
    let ((), more) = tokio::join!(churn, start_late);
    clients.extend(more);

    let mut ledgers = Vec::new();
    for truth in &truths {
        ledgers.push(truth.complete().await);
    }
    for (target, client) in &clients {
        wrong.extend(client.synced().await.err());
        wrong.extend(client.holds(&ledgers[*target].last()).await.err());
    }
    if is_full {
        // Faithful, but not by asking the server for every client: its watches are the truth's, and of informerd's one
        // for each encoding that was asked for. Typed Go informers want protobuf, the others JSON.
        let more: Vec<_> = open().await.iter().zip(&baseline).map(|(now, before)| now - before - 1).collect();
        if more != [2, 2, 1] {
            wrong.push(format!("{more:?} watches of pods, configmaps and widgets at the server instead of [2, 2, 1]"));
        }
    }
    // What comes now comes too often.
    sleep(Duration::from_millis(500)).await;
    let mut seen = Vec::new();
    for (target, client) in clients {
        let (name, errors) = (client.name.clone(), client.errors());
        match client.stop().await {
            Ok(informers) => {
                for (informer, lines) in informers.into_iter().enumerate() {
                    let name = format!("{name} #{informer}");
                    let found = ledgers[target].check(&lines);
                    if !found.is_empty() {
                        wrong.push(format!("{name}:\n    {}\n  stderr: {errors}", found.join("\n    ")));
                    }
                    seen.push((name, ledgers[target].clone(), lines));
                }
            }
            Err(error) => wrong.push(error),
        }
    }
    assert!(wrong.is_empty(), "{} of {} informers or more are wrong:\n{}", wrong.len(), seen.len(), wrong.join("\n"));
    seen
}

/// Starts the daemon's informer of each target in each encoding that the clients ask for, and waits until it answers.
/// On a busy machine an informer may take longer than a request waits for it. The request is then forwarded, and a
/// forwarded watch would be counted at the server below.
async fn warm(daemon: &Daemon) {
    let client = daemon.client();
    for target in TARGETS {
        let encodings: &[_] = if target.resource == WIDGETS.resource { &["json"] } else { &["json", "protobuf"] };
        for encoding in encodings {
            let accept = ("accept", if *encoding == "json" { "application/json" } else { PROTOBUF });
            until(&format!("{} is cached in {encoding}", target.name), async || {
                let path = format!("{}resourceVersion=0", target.path);
                assert_eq!(client.request(Method::GET, &path, &[accept], "").await.status, 200, "{}", target.name);
                daemon.is_cached(target.resource, encoding).await
            })
            .await;
        }
    }
}

/// Informers of client-go while the server goes away twice, once gracefully after a compaction and
/// once not: all end with what is there, and none sees an object go back.
pub(crate) async fn run_interrupted(cluster: &Cluster, endpoint: &Endpoint) {
    let direct = admin(cluster);
    scene::set_up(cluster).await;
    let mut clients = Vec::new();
    for plan in plan(endpoint, 0, true).await {
        if plan.name.contains("client-go") {
            clients.push(plan.start());
        }
    }
    let mut wrong = Vec::new();
    for (_, client) in &clients {
        wrong.extend(client.synced().await.err());
    }
    let pause = Duration::from_millis(5);
    scene::churn(&direct, 60, 5, pause).await;
    cluster.compact().await;
    cluster.restart_apiserver().await;
    scene::churn(&direct, 60, 6, pause).await;
    cluster.kill_apiserver().await;
    sleep(Duration::from_secs(2)).await;
    cluster.start_apiserver().await;
    scene::churn(&direct, 60, 7, pause).await;

    let mut ledgers = Vec::new();
    for target in TARGETS {
        ledgers.push(Ledger { initial: state(&direct.json(target.path).await), changes: Vec::new() });
    }
    for (target, client) in &clients {
        wrong.extend(client.holds(&ledgers[*target].last()).await.err());
    }
    for (target, client) in clients {
        let (name, errors) = (client.name.clone(), client.errors());
        match client.stop().await {
            Ok(informers) => wrong.extend(informers.iter().enumerate().flat_map(|(informer, lines)| {
                let found = ledgers[target].check_end_of_interrupted(lines);
                found
                    .into_iter()
                    .map(|found| format!("{name} #{informer}: {found}\n  stderr: {errors}"))
                    .collect::<Vec<_>>()
            })),
            Err(error) => wrong.push(error),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The clients at one endpoint. `is_full`: in all modes.
async fn plan(endpoint: &Endpoint, at: usize, is_full: bool) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut add = |name: &str, target: usize, informers, words: &[String], more: &[&str], env| {
        let Target { resource, namespace, labels, name: target_name, .. } = TARGETS[target];
        let mut words = words.to_vec();
        let mut push = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        push(&["--kubeconfig", endpoint.kubeconfig.to_str().expect("a path in UTF-8"), "--resource", resource]);
        if !namespace.is_empty() {
            push(&["--namespace", namespace]);
        }
        if !labels.is_empty() {
            push(&["--label-selector", labels]);
        }
        push(more);
        let name = format!("{name}, {target_name}, {}", endpoint.name);
        plans.push(Plan { name, target, informers, words, env });
    };
    let (pods, red, widgets) = (0, 1, 2);
    debug_assert_eq!(
        [TARGETS[pods].name, TARGETS[red].name, TARGETS[widgets].name],
        [PODS.name, RED.name, WIDGETS.name]
    );

    let (go, kube) = (prepared("go").await, prepared("kube-rs").await);
    let (python, node) = (prepared("python").await, prepared("node").await);
    let streaming = Some(("KUBE_FEATURE_WatchListClient", "true"));
    let listing = Some(("KUBE_FEATURE_WatchListClient", "false"));
    // client-go as old as the server. The endpoints share the targets.
    let judge = [process::judge().await.to_str().expect("a path in UTF-8"), "informer"].map(str::to_owned);
    let modes = if is_full { "typed,dynamic,metadata" } else { "typed" };
    let (target, informers) = ([pods, red][at % 2], modes.split(',').count());
    add("client-go 0.36", target, informers, &judge, &["--mode", modes], streaming);
    add("client-go 0.36, list", target, informers, &judge, &["--mode", modes], listing);
    for target in [pods, red] {
        add("client-go", target, 3, &go, &[], streaming);
        add("client-go, list", target, 3, &go, &[], listing);
        add("kube-rs", target, 4, &kube, &[], None);
        add("client-node", target, 1, &node, &[], None);
        add("python", target, 3, &python, &[], None);
    }
    add("client-go", widgets, 2, &go, &["--mode", "dynamic,metadata"], streaming);
    add("client-go, list", widgets, 2, &go, &["--mode", "dynamic,metadata"], listing);
    add("kube-rs", widgets, 4, &kube, &[], None);
    plans
}

// === impl Plan ===

impl Plan {
    fn start(self) -> (usize, Client) {
        let mut command = tied::command(&self.words[0]);
        command.args(&self.words[1..]).envs(self.env);
        (self.target, Client::start(self.name, self.informers, command))
    }
}
