//! How much later an event reaches a client through a server than over a watch at the kube-apiserver itself.
//!
//! Both watches are open at the same time, and each event is compared with itself. Each watch, with its connection, has
//! a thread of its own: nothing else that the generator does delays its clock.

use anyhow::Context;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Duration, Instant};

use super::client::{Connection, Protocol, Target};
use super::cpu::Meter;
use super::fanout::write_once;
use super::fixture::MAP;
use super::server::Running;
use super::watchers::{Wanted, Watchers, resource_version};

/// How much later an event arrives, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Of the server for each event: it takes it in and delivers it once.
    pub(crate) cpu_micros: f64,
}

/// Between two writes, which are about 20 per second then.
const PAUSE: Duration = Duration::from_millis(45);
/// After it, the start of a server or of a watch is over.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) async fn run(
    server: &Running,
    protocol: Protocol,
    apiserver: &Target,
    writer: &mut Connection,
    updates: usize,
) -> anyhow::Result<Latency> {
    server.wait_until_cached("/api/v1/configmaps?resourceVersion=0").await?;
    let epoch = Instant::now();
    // A revision that informerd has seen: watches from an older one are forwarded.
    write_once(writer, MAP, epoch).await?;
    tokio::time::sleep(SETTLE).await;
    let rv = resource_version(&writer.get_text(MAP).await?)?;
    let served = server.served().await?;
    // The watch of informerd itself is over HTTP/2, too.
    let wanted = Wanted { protocol: Protocol::Http2, watchers: 1, streams: 1, updates, rv, epoch };
    let direct = open(apiserver.clone(), wanted).await?;
    let through = open(server.target.clone(), Wanted { protocol, ..wanted }).await?;
    server.check_served(served, usize::from(protocol != Protocol::Grpc)).await?;
    tokio::time::sleep(SETTLE).await;

    let meter = Meter::start(server.target.pid)?;
    for _ in 0..updates {
        write_once(writer, MAP, epoch).await?;
        tokio::time::sleep(PAUSE).await;
    }
    let cpu_seconds = meter.seconds()?;
    let (direct, through) = (direct.await??, through.await??);
    let mut later: Vec<f64> = through.iter().zip(&direct).map(|(through, direct)| through - direct).collect();
    later.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| later[((later.len() - 1) as f64 * quantile) as usize];
    Ok(Latency {
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p99_ms: at(0.99),
        max_ms: at(1.0),
        cpu_micros: cpu_seconds * 1e6 / updates as f64,
    })
}

/// Opens a watch on a thread of its own, which returns how old each event was, in the order of the events.
async fn open(target: Target, wanted: Wanted) -> anyhow::Result<JoinHandle<anyhow::Result<Vec<f64>>>> {
    let (opened, is_open) = oneshot::channel();
    let reading = spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut watching = Watchers::open(&target, wanted).await?;
            opened.send(()).ok();
            for _ in 0..wanted.updates {
                watching.one_each().await?;
            }
            watching.finish().await
        })
    });
    if is_open.await.is_err() {
        return Err(reading.await?.err().context("a watch was not opened")?);
    }
    Ok(reading)
}
