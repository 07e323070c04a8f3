//! Lists of the newest state in each mode: what they cost the kube-apiserver, by its own count, and how long they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::ensure;
use http::Method;
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant};

use super::Options;
use super::client::{Connection, Protocol, Target};
use super::fixture::{MAP, config_map};
use super::server::Running;

/// What so many reads cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadCost {
    /// Requests the kube-apiserver counted for the resource, per 1,000 reads.
    pub(crate) lists: f64,
    pub(crate) watches: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// What is written meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Other resources only.
    Quiet,
    Busy,
}

const MAPS: &str = "/api/v1/configmaps";
const OTHER: &str = "/api/v1/namespaces/load/secrets/other";

/// A short watch is counted when it ends.
const LONGEST_PROBE: Duration = Duration::from_secs(5);

pub(crate) async fn run(
    server: &Running,
    apiserver: &Target,
    writer: &mut Connection,
    resource: Resource,
    readers: usize,
    options: &Options,
) -> anyhow::Result<ReadCost> {
    server.wait_until_cached("/api/v1/configmaps?resourceVersion=0").await?;
    tokio::time::sleep(LONGEST_PROBE).await;
    let before = counted(apiserver).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = informerd::lifecycle::spawn("load-writer", {
        let (stop, writer, pause) = (stop.clone(), writer.share()?, Duration::from_millis(options.pause_ms));
        async move { write(writer, resource, &stop, pause).await }
    });
    let left = Arc::new(AtomicUsize::new(options.reads));
    let mut reading = Vec::new();
    for _ in 0..readers {
        let (left, mut connection) = (left.clone(), server.target.connect(Protocol::Http2).await?);
        reading.push(informerd::lifecycle::spawn("load-reader", async move {
            let mut took = Vec::new();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let started = Instant::now();
                connection.get_text(MAPS).await?;
                took.push(started.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(took)
        }));
    }
    let mut took = Vec::new();
    for reader in reading {
        took.extend(reader.await??);
    }
    stop.store(true, Ordering::Relaxed);
    writing.await??;
    tokio::time::sleep(LONGEST_PROBE).await;
    let after = counted(apiserver).await?;
    ensure!(took.len() == options.reads, "{} reads", took.len());
    took.sort_unstable_by(f64::total_cmp);
    let at = |quantile: f64| took[((took.len() - 1) as f64 * quantile) as usize];
    let per_thousand = |count: f64| count * 1e3 / options.reads as f64;
    Ok(ReadCost {
        lists: per_thousand(after.0 - before.0),
        watches: per_thousand(after.1 - before.1),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
    })
}

async fn write(mut writer: Connection, resource: Resource, stop: &AtomicBool, pause: Duration) -> anyhow::Result<()> {
    for n in 0u128.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (path, body) = match resource {
            Resource::Busy => (MAP, config_map(n)),
            Resource::Quiet => {
                let text =
                    format!(r#"{{"metadata":{{"name":"other","namespace":"load"}},"stringData":{{"n":"{n}"}}}}"#);
                (OTHER, text)
            }
        };
        writer.send(Method::PUT, path, &[], body).await?.into_body().collect().await?;
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Lists and watches of the resource that the kube-apiserver has answered so far.
async fn counted(apiserver: &Target) -> anyhow::Result<(f64, f64)> {
    let text = apiserver.connect(Protocol::Http2).await?.get_text("/metrics").await?;
    let of = |verb: &str| {
        let lines = text.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains(r#"resource="configmaps""#)
                && line.contains(verb)
        });
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>()
    };
    Ok((of(r#"verb="LIST""#), of(r#"verb="WATCH""#)))
}
