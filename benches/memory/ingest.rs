//! What an event costs: a changed pod that arrives, is stored, is sent to one watcher, and is packed.

use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout};

use super::Form;
use super::client::Protocol;
use super::reads::revision;
use super::server::Running;
use super::start::{memory, settle};
use super::world::World;

/// What so many events cost the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCost {
    pub(crate) wall_seconds: f64,
    /// Until the watcher had the last one.
    pub(crate) cpu_seconds: f64,
    /// In [`AFTER`] after that.
    pub(crate) after_cpu_seconds: f64,
    /// In a time of [`AFTER`] before the first one.
    pub(crate) rest_cpu_seconds: f64,
    pub(crate) resident: usize,
}

const AFTER: Duration = Duration::from_secs(5);

/// Changes so many pods once each.
pub(crate) async fn run(server: &Running, world: &World, count: usize, form: Form) -> anyhow::Result<EventCost> {
    // What was read before is packed again, which is no part of what an event costs.
    settle(server, form).await?;
    let target = &server.target;
    let revision = revision(target).await?;
    let mut connection = target.connect(Protocol::Http2).await?;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={revision}&timeoutSeconds=600");
    let body = connection.get(&path).await?.into_body();
    let watcher = informerd::lifecycle::spawn("memory-watcher", watch(body, count));
    let idle = target.cpu_seconds()?;
    sleep(AFTER).await;
    let (cpu, begun) = (target.cpu_seconds()?, Instant::now());
    // The name is what the label becomes.
    world.update(count, form.as_str()).await?;
    timeout(Duration::from_secs(60), watcher).await.context("the watcher misses events")???;
    let (end, wall_seconds) = (target.cpu_seconds()?, begun.elapsed().as_secs_f64());
    sleep(AFTER).await;
    Ok(EventCost {
        wall_seconds,
        cpu_seconds: end - cpu,
        after_cpu_seconds: target.cpu_seconds()? - end,
        rest_cpu_seconds: cpu - idle,
        resident: memory(target, "VmRSS:")?,
    })
}

/// Reads so many events.
async fn watch(mut body: Incoming, count: usize) -> anyhow::Result<()> {
    let (mut pending, mut seen) = (Vec::new(), 0);
    while seen < count {
        let frame = body.frame().await.context("the watch ended early")??;
        pending.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = memchr::memchr(b'\n', &pending) {
            let line: Vec<u8> = pending.drain(..=end).collect();
            ensure!(
                line.starts_with(br#"{"type":"MODIFIED""#),
                "unexpected event {}",
                String::from_utf8_lossy(&line[..line.len().min(200)])
            );
            seen += 1;
        }
    }
    Ok(())
}
