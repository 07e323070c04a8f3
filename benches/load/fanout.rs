//! Many watchers of one object, and a writer that changes it.

use http::Method;
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant};

use super::Options;
use super::client::{Connection, Protocol};
use super::cpu::Meter;
use super::fixture::{MAP, config_map};
use super::server::Running;
use super::watchers::{Wanted, Watchers, resource_version};

/// What a fan-out costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanoutCost {
    pub(crate) deliveries: usize,
    pub(crate) wall_seconds: f64,
    /// Of the server, without what the same writes cost it when nobody watches.
    pub(crate) cpu_seconds: f64,
    /// Of the server for the writes alone: the kube-apiserver does them, informerd watches them.
    pub(crate) unwatched_cpu_seconds: f64,
    /// Of the generator.
    pub(crate) client_cpu_seconds: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Growth of the memory held, by the idle watchers, KiB each.
    pub(crate) watcher_kib: f64,
}

pub(crate) async fn run(
    server: &Running,
    protocol: Protocol,
    writer: &mut Connection,
    options: &Options,
) -> anyhow::Result<FanoutCost> {
    let target = &server.target;
    server.wait_until_cached("/api/v1/configmaps?resourceVersion=0").await?;
    let epoch = Instant::now();
    let meter = Meter::start(target.pid)?;
    write(writer, epoch, options).await?;
    let unwatched_cpu_seconds = meter.seconds()?;

    let served = server.served().await?;
    let rv = resource_version(&writer.get_text(MAP).await?)?;
    let before = target.held_mib().await?;
    let Options { watchers, streams, updates, .. } = *options;
    let watching = Watchers::open(target, Wanted { protocol, watchers, streams, updates, rv, epoch }).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let watcher_kib = (target.held_mib().await? - before) * 1024.0 / watchers as f64;

    let (meter, own, started) = (Meter::start(target.pid)?, Meter::start(std::process::id())?, Instant::now());
    write(writer, epoch, options).await?;
    let mut latencies = watching.finish().await?;
    let wall_seconds = started.elapsed().as_secs_f64();
    let (cpu_seconds, client_cpu_seconds) = (meter.seconds()?, own.seconds()?);
    server.check_served(served, if protocol == Protocol::Grpc { 0 } else { watchers }).await?;
    latencies.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| latencies[((latencies.len() - 1) as f64 * quantile) as usize];
    Ok(FanoutCost {
        deliveries: latencies.len(),
        wall_seconds,
        cpu_seconds: cpu_seconds - unwatched_cpu_seconds,
        unwatched_cpu_seconds,
        client_cpu_seconds,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        max_ms: at(1.0),
        watcher_kib,
    })
}

async fn write(writer: &mut Connection, epoch: Instant, options: &Options) -> anyhow::Result<()> {
    for _ in 0..options.updates {
        write_once(writer, MAP, epoch).await?;
        tokio::time::sleep(Duration::from_millis(options.pause_ms)).await;
    }
    Ok(())
}

/// Writes an object with the present moment in it.
pub(crate) async fn write_once(writer: &mut Connection, path: &str, epoch: Instant) -> anyhow::Result<()> {
    let body = config_map(epoch.elapsed().as_nanos());
    writer.send(Method::PUT, path, &[], body).await?.into_body().collect().await?;
    Ok(())
}
