//! What a restart costs informerd and the kube-apiserver, with snapshots and without.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

use super::Form;
use super::others::Kind;
use super::server::{Running, Transport};
use super::start::{memory, pinned, settle};
use super::world::World;
use super::{Options, reads};

/// What the second start of an informerd cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartCost {
    pub(crate) ready_seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak: usize,
    pub(crate) apiserver_cpu_seconds: f64,
    /// Reads of a whole state: lists of it, and watches that begin with it.
    pub(crate) states: f64,
    /// Lists of one object or none.
    pub(crate) probes: f64,
    pub(crate) snapshot_bytes: f64,
    /// Processor time for each change before the restart.
    pub(crate) change_micros: f64,
}

const LONGEST: Duration = Duration::from_secs(180);

/// Snapshots are written for the first time some seconds after the start.
const WRITTEN: Duration = Duration::from_secs(10);

/// Changes before the restart.
const CHANGES: usize = 3_000;

/// Starts an informerd, ends it as by a crash, and starts it again.
pub(crate) async fn run(
    binary: &Path,
    kubeconfig: &Path,
    state: &Path,
    form: Form,
    with: bool,
    world: &World,
    options: &Options,
) -> anyhow::Result<RestartCost> {
    let paths = [Kind::Pods.path()];
    let dir = state.join(format!("snapshots-{}", form.as_str()));
    let dir = dir.display().to_string();
    let flags = if with { &["--snapshots-dir", &dir][..] } else { &[] };
    let rules = pinned(Kind::ALL.iter().map(|kind| kind.resource()));
    let flags = [&["--memory-form", form.as_str(), "--resources", &rules], flags].concat();
    let first = Running::informerd(binary, kubeconfig, state, Transport::Plain, &flags)?;
    ready(&first).await?;
    settle(&first, form).await?;
    if with {
        sleep(WRITTEN).await;
    }
    let (before, changes) = (first.target.cpu_seconds()?, CHANGES.min(options.pods));
    world.update(changes, if with { "kept" } else { "not-kept" }).await?;
    // The last events are written within a second or two.
    sleep(Duration::from_secs(3)).await;
    let change_micros = (first.target.cpu_seconds()? - before) * 1e6 / changes.max(1) as f64;
    drop(first);
    sleep(Duration::from_secs(1)).await;
    let expected = reads::items(&world.apiserver, &paths).await?;

    let apiserver = world.apiserver.cpu_seconds()?;
    let begun = Instant::now();
    let second = Running::informerd(binary, kubeconfig, state, Transport::Plain, &flags)?;
    ready(&second).await?;
    let ready_seconds = begun.elapsed().as_secs_f64();
    let cpu_seconds = second.target.cpu_seconds()?;
    let apiserver_cpu_seconds = world.apiserver.cpu_seconds()? - apiserver;
    let metrics = second.admin("/metrics").await?.unwrap_or_default();
    let cost = RestartCost {
        ready_seconds,
        cpu_seconds,
        peak: memory(&second.target, "VmHWM:")?,
        apiserver_cpu_seconds,
        states: states(&metrics),
        probes: requests(&metrics, "probe"),
        snapshot_bytes: if with { length(Path::new(&dir))? } else { 0.0 },
        change_micros,
    };
    // What was read from disk is what the kube-apiserver has.
    reads::run(&second, &paths, &expected, 0).await?;
    Ok(cost)
}

/// The reads of a whole state that the metrics of an informerd tell of.
pub(crate) fn states(metrics: &str) -> f64 {
    requests(metrics, "list") + requests(metrics, "watchlist") + 0.0
}

/// The requests for objects of any kind with this verb.
fn requests(metrics: &str, verb: &str) -> f64 {
    let wanted = format!("verb=\"{verb}\"");
    let of_kind = |line: &str| Kind::ALL.iter().any(|kind| line.contains(&format!("resource=\"{}\"", kind.resource())));
    let lines = metrics.lines().filter(|line| line.starts_with("informerd_upstream_requests_total{"));
    let lines = lines.filter(|line| line.contains(&wanted) && of_kind(line));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// The length of all files.
fn length(dir: &Path) -> anyhow::Result<f64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes as f64)
}

/// Waits until all caches are filled.
pub(crate) async fn ready(running: &Running) -> anyhow::Result<()> {
    let begun = Instant::now();
    while running.admin("/readyz").await.is_err() {
        if begun.elapsed() > LONGEST {
            bail!("informerd is not ready");
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
