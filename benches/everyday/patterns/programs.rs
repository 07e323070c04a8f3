//! Programs whose requests depend on what they are answered: helm itself, the namespace controller, pods behind the agent of
//! their node, and clients that live through a restart of informerd.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use http::Method;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{Daemon, Ground, cluster};
use crate::client::Target;
use crate::meter::TOKEN_REVIEW;
use crate::process::{self, tied};
use crate::session::{CONTROLLER, DISCOVERY, METADATA, Session, Side, Stream};
use crate::{Pattern, side};

/// The real helm: install, upgrade, rollback, uninstall of informerd's own chart.
pub(super) async fn release(ground: &Ground<'_>, target: &Target) -> anyhow::Result<()> {
    const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/informerd");
    let program = process::prepared("helm").await.concat();
    // What it knows of a server is on disk.
    let home = tempfile::tempdir_in(&ground.dir)?;
    let kubeconfig = ground.kubeconfig(target, home.path())?;
    for command in [
        &["install", "informerd", CHART][..],
        &["upgrade", "informerd", CHART, "--set", "config.window.maxBytes=64Mi"],
        &["rollback", "informerd", "1"],
        &["uninstall", "informerd"],
    ] {
        let mut helm = tied::command(&program);
        helm.env_clear().env("HOME", home.path()).args(command);
        helm.args(["--namespace", cluster::RELEASE, "--kubeconfig"]).arg(&kubeconfig);
        let output = helm.output().await?;
        ensure!(output.status.success(), "helm {command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// What is in a namespace, resource by resource: it is listed, deleted and listed again.
pub(super) async fn deletion(side: &Arc<Side>) -> anyhow::Result<String> {
    let mut session = Session::open(side, &CONTROLLER).await?;
    let mut resources = Vec::new();
    for root in ["/api", "/apis"] {
        let groups: Value = serde_json::from_slice(&session.fetch(root, DISCOVERY).await?)?;
        for group in groups["items"].as_array().into_iter().flatten() {
            let (name, version) = (group["metadata"]["name"].as_str(), &group["versions"][0]);
            let group = name.filter(|name| !name.is_empty()).map_or_else(String::new, |name| format!("/{name}"));
            let version_name = version["version"].as_str().unwrap_or_default();
            for resource in version["resources"].as_array().into_iter().flatten() {
                let is_able =
                    |verb: &str| resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|it| it == verb));
                if resource["scope"] == "Namespaced" && is_able("list") && is_able("deletecollection") {
                    let plural = resource["resource"].as_str().unwrap_or_default();
                    resources.push(format!("{root}{group}/{version_name}/namespaces/{}/{plural}", cluster::DOOMED));
                }
            }
        }
    }
    for path in &resources {
        session.read(path, METADATA).await?;
        let options = r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#;
        session.write(Method::DELETE, path, options.into()).await?;
        session.read(path, METADATA).await?;
    }
    Ok(format!("{} resources", resources.len()))
}

/// Each pod has two informers, and does nothing more.
pub(super) async fn agent(ground: &Ground<'_>, target: &Target) -> anyhow::Result<String> {
    let mut streams = Vec::new();
    for token in &ground.tokens {
        let side = side(&Target { token: Some(token.clone()), ..target.clone() });
        let mut session = Session::open(&side, &CONTROLLER).await?;
        for path in ["/api/v1/services", "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-0"] {
            streams.push(session.list_and_watch(path).await?.1);
        }
    }
    // Longer than `authentication.ttl`: what a token is bound to is looked at when its review is that old.
    sleep(Duration::from_secs(15)).await;
    let begin = ground.meter.begin().await?;
    sleep(Duration::from_secs(20)).await;
    let steady = ground.meter.end(&begin).await?;
    drop(streams);
    let a_minute = |count: f64| count * 60.0 / steady.wall_seconds;
    let (reviews, all) = (a_minute(steady.of(TOKEN_REVIEW)), a_minute(steady.total()));
    Ok(format!("in steady state {reviews:.0} TokenReviews and {all:.0} requests a minute"))
}

const CLIENTS: usize = 20;
const PODS: &str = "/api/v1/pods";

/// Informers on pods, while informerd is started again without anything that it knew, and pods change.
pub(super) async fn roll_out(
    ground: &Ground<'_>,
    target: &Target,
    daemon: &mut Option<Daemon>,
) -> anyhow::Result<String> {
    let side = side(target);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Session::open(&side, &CONTROLLER).await?.list_and_watch(PODS).await?);
    }
    change(ground, "before").await?;
    for (_, stream) in &mut clients {
        stream.until(br#""roll":"before""#).await?;
    }
    let ports = daemon.take().map(|daemon| daemon.ports);
    sleep(Duration::from_secs(1)).await;
    for n in 0..10 {
        change(ground, &format!("away-{n}")).await?;
    }
    let Some(ports) = ports else {
        for (_, stream) in &mut clients {
            stream.until(LAST).await?;
        }
        return Ok(String::new());
    };
    let started = daemon.insert(ground.start_at(ports, Pattern::RollOut).await?);
    let resumed = try_join_all(clients.iter().map(|(revision, _)| resumed(&side, revision))).await?;
    let lists = resumed.iter().filter(|(lists_again, _)| *lists_again).count();
    let forwarded = started.running.forwarded().await?.get("outside_window").copied().unwrap_or_default();
    Ok(format!("of {CLIENTS} watches {forwarded} forwarded, {lists} listed again"))
}

const LAST: &[u8] = br#""roll":"away-9""#;

async fn change(ground: &Ground<'_>, roll: &str) -> anyhow::Result<()> {
    let patch = format!(r#"{{"metadata":{{"annotations":{{"roll":"{roll}"}}}}}}"#);
    let mut session = Session::open(&side(&ground.relayed), &CONTROLLER).await?;
    session.patch("/api/v1/namespaces/shop/pods/pod-00100", patch).await
}

/// As client-go goes on after a connection is lost: whether it had to list again, and its new watch.
async fn resumed(side: &Arc<Side>, revision: &str) -> anyhow::Result<(bool, Stream)> {
    let mut session = Session::open(side, &CONTROLLER).await?;
    if let Ok(mut stream) = session.resume(PODS, revision).await
        && let Ok(Ok(())) = timeout(Duration::from_secs(15), stream.until(LAST)).await
    {
        return Ok((false, stream));
    }
    Ok((true, session.list_and_watch(PODS).await?.1))
}
