//! Many watchers of one object, and a writer that changes it.

use std::sync::Arc;

use anyhow::{Context, ensure};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use informerd::grpc::pb::v1;
use parking_lot::Mutex;
use prost::Message;
use tokio::time::{Duration, Instant};

use super::Options;
use super::client::{Connection, Protocol, cpu_seconds};
use super::fixture::config_map;
use super::server::Running;

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
    /// Growth of the memory held, by the idle watchers, KiB each.
    pub(crate) watcher_kib: f64,
}

const MAP: &str = "/api/v1/namespaces/load/configmaps/load";

pub(crate) async fn run(
    server: &Running,
    protocol: Protocol,
    writer: &mut Connection,
    options: &Options,
) -> anyhow::Result<FanoutCost> {
    let target = &server.target;
    server.wait_until_cached("/api/v1/configmaps?resourceVersion=0").await?;
    let epoch = Instant::now();
    let cpu = target.cpu_seconds()?;
    write(writer, epoch, options).await?;
    let unwatched_cpu_seconds = target.cpu_seconds()? - cpu;

    let rv = resource_version(&writer.get_text(MAP).await?)?;
    let served = server.served().await?;
    let before = target.held_mib().await?;
    let latencies = Arc::new(Mutex::new(Vec::with_capacity(options.watchers * options.updates)));
    let mut watchers = Vec::with_capacity(options.watchers);
    let mut shared: Option<Connection> = None;
    for i in 0..options.watchers {
        let mut connection = match (&shared, protocol) {
            (Some(shared), Protocol::Http2 | Protocol::Grpc) if i % options.streams != 0 => shared.share()?,
            _ => target.connect(protocol).await?,
        };
        let body = open(&mut connection, protocol, rv).await?;
        let (latencies, updates) = (latencies.clone(), options.updates);
        if protocol != Protocol::Http1 {
            shared = Some(connection.share()?);
        }
        watchers.push(informerd::lifecycle::spawn("load-watcher", async move {
            let seen = match protocol {
                Protocol::Grpc => grpc_watcher(body, epoch, updates, latencies).await,
                Protocol::Http1 | Protocol::Http2 => watcher(body, epoch, updates, latencies).await,
            };
            // An HTTP/1.1 connection ends with its handle.
            drop(connection);
            seen
        }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let watcher_kib = (target.held_mib().await? - before) * 1024.0 / options.watchers as f64;

    let (cpu, own, started) = (target.cpu_seconds()?, cpu_seconds("self")?, Instant::now());
    write(writer, epoch, options).await?;
    for watcher in watchers {
        tokio::time::timeout(Duration::from_secs(60), watcher).await.context("a watcher lost events")???;
    }
    let wall_seconds = started.elapsed().as_secs_f64();
    let cpu_seconds_used = target.cpu_seconds()? - cpu;
    let client_cpu_seconds = cpu_seconds("self")? - own;
    server.check_served(served, if protocol == Protocol::Grpc { 0 } else { options.watchers }).await?;
    let mut latencies = std::mem::take(&mut *latencies.lock());
    latencies.sort_unstable_by(f64::total_cmp);
    ensure!(latencies.len() == options.watchers * options.updates, "{} events", latencies.len());
    let at = |quantile: f64| latencies[((latencies.len() - 1) as f64 * quantile) as usize];
    Ok(FanoutCost {
        deliveries: latencies.len(),
        wall_seconds,
        cpu_seconds: cpu_seconds_used - unwatched_cpu_seconds,
        unwatched_cpu_seconds,
        client_cpu_seconds,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        watcher_kib,
    })
}

async fn write(writer: &mut Connection, epoch: Instant, options: &Options) -> anyhow::Result<()> {
    for _ in 0..options.updates {
        let body = config_map(epoch.elapsed().as_nanos());
        writer.send(Method::PUT, MAP, &[], body).await?.into_body().collect().await?;
        tokio::time::sleep(Duration::from_millis(options.pause_ms)).await;
    }
    Ok(())
}

/// Reads until it has seen every update, and notes how old each was.
async fn watcher(
    mut body: Incoming,
    epoch: Instant,
    updates: usize,
    latencies: Arc<Mutex<Vec<f64>>>,
) -> anyhow::Result<()> {
    let mut pending = Vec::new();
    let mut own = Vec::with_capacity(updates);
    let mut last = 0;
    while own.len() < updates {
        let frame = body.frame().await.context("the watch ended early")??;
        let Some(data) = frame.data_ref() else { continue };
        pending.extend_from_slice(data);
        while let Some(end) = memchr::memchr(b'\n', &pending) {
            let line = std::str::from_utf8(&pending[..end])?;
            ensure!(line.starts_with(r#"{"type":"MODIFIED""#), "unexpected event {}", &line[..line.len().min(200)]);
            let rv = resource_version(line)?;
            ensure!(rv > last, "event {rv} after {last}");
            last = rv;
            let sent: u128 = part(line, r#""sent":""#)?.parse()?;
            own.push((epoch.elapsed().as_nanos().saturating_sub(sent)) as f64 / 1e6);
            pending.drain(..=end);
        }
    }
    latencies.lock().extend(own);
    Ok(())
}

/// The watch of one watcher: of the same objects, from the same revision, in JSON.
async fn open(connection: &mut Connection, protocol: Protocol, rv: u64) -> anyhow::Result<Incoming> {
    if protocol != Protocol::Grpc {
        let path = format!("/api/v1/namespaces/load/configmaps?watch=1&resourceVersion={rv}&timeoutSeconds=600");
        return Ok(connection.get(&path).await?.into_body());
    }
    let resource = v1::Resource { group: String::new(), version: "v1".into(), resource: "configmaps".into() };
    let filter = v1::Filter { namespace: "load".into(), ..Default::default() };
    let selection = v1::Selection { resource: Some(resource), filters: vec![filter], ..Default::default() };
    let start = Some(v1::watch_request::Start::FromResourceVersion(rv.to_string()));
    let request = v1::WatchRequest { selection: Some(selection), start, ..Default::default() };
    Ok(connection.call("/informerd.v1.Objects/Watch", &request).await?.into_body())
}

/// The same of frames.
async fn grpc_watcher(
    mut body: Incoming,
    epoch: Instant,
    updates: usize,
    latencies: Arc<Mutex<Vec<f64>>>,
) -> anyhow::Result<()> {
    let mut pending = Vec::new();
    let mut own = Vec::with_capacity(updates);
    let mut last = 0;
    while own.len() < updates {
        let frame = body.frame().await.context("the watch ended early")??;
        let Some(data) = frame.data_ref() else { continue };
        pending.extend_from_slice(data);
        while let Some((head, rest)) = pending.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let Some(message) = rest.get(..length) else { break };
            let response = v1::WatchResponse::decode(message)?;
            pending.drain(..5 + length);
            let Some(v1::watch_response::Frame::Events(events)) = response.frame else { continue };
            for event in events.events {
                ensure!(event.r#type() == v1::event::Type::Modified, "unexpected event {:?}", event.key);
                let rv = event.key.context("no key")?.resource_version.parse()?;
                ensure!(rv > last, "event {rv} after {last}");
                last = rv;
                let sent: u128 = part(std::str::from_utf8(&event.object)?, r#""sent":""#)?.parse()?;
                own.push((epoch.elapsed().as_nanos().saturating_sub(sent)) as f64 / 1e6);
            }
        }
    }
    latencies.lock().extend(own);
    Ok(())
}

pub(crate) fn resource_version(object: &str) -> anyhow::Result<u64> {
    Ok(part(object, r#""resourceVersion":""#)?.parse()?)
}

/// The text between `start` and the next quote.
fn part<'a>(text: &'a str, start: &str) -> anyhow::Result<&'a str> {
    let at = memchr::memmem::find(text.as_bytes(), start.as_bytes()).with_context(|| format!("no {start}"))?;
    let rest = &text[at + start.len()..];
    Ok(rest.split_once('"').context("no closing quote")?.0)
}
