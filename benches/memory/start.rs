//! What it costs to fill the caches, and to pack them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use super::Form;
use super::client::{Target, metric};
use super::server::{Running, Transport};

/// What the start of one informerd cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartCost {
    pub(crate) ready_seconds: f64,
    pub(crate) ready_cpu_seconds: f64,
    pub(crate) packing_cpu_seconds: f64,
    /// After packing.
    pub(crate) resident: usize,
    pub(crate) peak: usize,
    pub(crate) packed_objects: f64,
    pub(crate) saved_bytes: f64,
    pub(crate) is_settled: bool,
}

/// Packing is over when it has not packed anything for this long: `auto` looks at the objects every 30 s, `packed` every
/// 2 s.
const QUIET_AUTO: Duration = Duration::from_secs(40);
const QUIET_PACKED: Duration = Duration::from_secs(10);
const QUIET_PLAIN: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(180);

/// Rules that pin these resources, and nothing else.
pub(crate) fn pinned<'a>(resources: impl Iterator<Item = &'a str>) -> String {
    let rules: String = resources.map(|resource| format!("{{resource: {resource}, pin: true}}, ")).collect();
    format!("[{rules}{{resource: \"*\", exclude: true}}]")
}

/// Starts informerd with all kinds pinned, and waits until it has packed what it packs.
pub(crate) async fn start(
    binary: &Path,
    kubeconfig: &Path,
    state: &Path,
    form: Form,
    rules: &str,
) -> anyhow::Result<(Running, StartCost)> {
    let flags = ["--memory-form", form.as_str(), "--resources", rules];
    let begun = Instant::now();
    let running = Running::informerd(binary, kubeconfig, state, Transport::Plain, &flags)?;
    while running.admin("/readyz").await.is_err() {
        if begun.elapsed() > LONGEST {
            bail!("informerd is not ready");
        }
        sleep(Duration::from_millis(20)).await;
    }
    let (ready_seconds, ready_cpu_seconds) = (begun.elapsed().as_secs_f64(), running.target.cpu_seconds()?);
    let is_settled = settle(&running, form).await?;
    let metrics = running.admin("/metrics").await?.unwrap_or_default();
    let cost = StartCost {
        ready_seconds,
        ready_cpu_seconds,
        packing_cpu_seconds: running.target.cpu_seconds()? - ready_cpu_seconds,
        resident: memory(&running.target, "VmRSS:")?,
        peak: memory(&running.target, "VmHWM:")?,
        packed_objects: metric(&metrics, "informerd_packed_objects"),
        saved_bytes: metric(&metrics, "informerd_packed_saved_bytes"),
        is_settled,
    };
    Ok((running, cost))
}

/// Waits until the number of packed objects stays as it is. False if it never does.
pub(crate) async fn settle(running: &Running, form: Form) -> anyhow::Result<bool> {
    let quiet = match form {
        Form::Plain => QUIET_PLAIN,
        Form::Auto => QUIET_AUTO,
        Form::Packed => QUIET_PACKED,
    };
    let begun = Instant::now();
    let (mut last, mut since) = (packed_objects(running).await?, Instant::now());
    while since.elapsed() < quiet {
        if begun.elapsed() > LONGEST {
            return Ok(false);
        }
        sleep(Duration::from_secs(1)).await;
        let now = packed_objects(running).await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(true)
}

async fn packed_objects(running: &Running) -> anyhow::Result<f64> {
    Ok(metric(&running.admin("/metrics").await?.unwrap_or_default(), "informerd_packed_objects"))
}

/// Bytes of a process by a line of its status.
pub(crate) fn memory(target: &Target, name: &str) -> anyhow::Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.pid))?;
    let line = status.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name}"))?;
    Ok(line.split_whitespace().nth(1).with_context(|| format!("no {name}"))?.parse::<usize>()? * 1024)
}
