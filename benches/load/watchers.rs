//! Watchers of one object: each on a stream or a connection of its own, from the same revision, in JSON.

use std::sync::Arc;

use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use informerd::grpc::pb::v1;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant};

use super::client::{Connection, Protocol, Target};

/// Which watchers are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) protocol: Protocol,
    pub(crate) watchers: usize,
    /// Watches on one HTTP/2 connection.
    pub(crate) streams: usize,
    /// Each watcher ends after so many events.
    pub(crate) updates: usize,
    /// They start after this revision.
    pub(crate) rv: u64,
    /// The moment from which the writer counts.
    pub(crate) epoch: Instant,
}

/// Open watches. Dropping them ends them.
pub(crate) struct Watchers {
    wanted: Wanted,
    tasks: Vec<JoinHandle<anyhow::Result<()>>>,
    received: Arc<Received>,
}

/// What all of them have received.
struct Received {
    /// A permit for each delivery.
    deliveries: Semaphore,
    /// Milliseconds from the write to the delivery.
    latencies: Mutex<Vec<f64>>,
}

/// Connections that are opened at the same time.
const OPENING: usize = 16;
/// Only an event that was lost takes longer.
const LOST: Duration = Duration::from_secs(60);

// === impl Watchers ===

impl Watchers {
    pub(crate) async fn open(target: &Target, wanted: Wanted) -> anyhow::Result<Self> {
        let each = if wanted.protocol == Protocol::Http1 { 1 } else { wanted.streams };
        let connections = wanted.watchers.div_ceil(each);
        let opened: Vec<_> = futures_util::stream::iter(0..connections)
            .map(|index| connect(target, wanted.protocol, each.min(wanted.watchers - index * each), wanted.rv))
            .buffer_unordered(OPENING)
            .try_collect()
            .await?;
        let received = Arc::new(Received { deliveries: Semaphore::new(0), latencies: Mutex::default() });
        let watch = |(connection, body): (Connection, Incoming)| {
            let received = Arc::clone(&received);
            informerd::lifecycle::spawn("load-watcher", async move {
                let seen = match wanted.protocol {
                    Protocol::Grpc => grpc_watcher(body, wanted, &received).await,
                    Protocol::Http1 | Protocol::Http2 => watcher(body, wanted, &received).await,
                };
                // An HTTP/1.1 connection ends with its handle.
                drop(connection);
                seen
            })
        };
        let tasks = opened.into_iter().flatten().map(watch).collect();
        Ok(Self { wanted, tasks, received })
    }

    /// Waits until each watcher has received one more event.
    pub(crate) async fn one_each(&mut self) -> anyhow::Result<()> {
        let all = self.received.deliveries.acquire_many(u32::try_from(self.wanted.watchers)?);
        if let Ok(permits) = tokio::time::timeout(LOST, all).await {
            permits?.forget();
            return Ok(());
        }
        for task in self.tasks.iter_mut().filter(|task| task.is_finished()) {
            task.await??;
        }
        anyhow::bail!("a watcher lost events")
    }

    /// Waits until each watcher has received all events, and returns how old each was: one watcher after the other, its
    /// events in their order.
    pub(crate) async fn finish(mut self) -> anyhow::Result<Vec<f64>> {
        for task in &mut self.tasks {
            tokio::time::timeout(LOST, task).await.context("a watcher lost events")???;
        }
        let latencies = std::mem::take(&mut *self.received.latencies.lock());
        ensure!(latencies.len() == self.wanted.watchers * self.wanted.updates, "{} events", latencies.len());
        Ok(latencies)
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A connection with so many watches.
async fn connect(
    target: &Target,
    protocol: Protocol,
    watches: usize,
    rv: u64,
) -> anyhow::Result<Vec<(Connection, Incoming)>> {
    let mut connection = target.connect(protocol).await?;
    let mut opened = Vec::with_capacity(watches);
    for _ in 1..watches {
        let mut shared = connection.share()?;
        let body = open(&mut shared, protocol, rv).await?;
        opened.push((shared, body));
    }
    let body = open(&mut connection, protocol, rv).await?;
    opened.push((connection, body));
    Ok(opened)
}

/// Reads until it has seen every update, and notes how old each was.
async fn watcher(mut body: Incoming, wanted: Wanted, received: &Received) -> anyhow::Result<()> {
    let mut pending = Vec::new();
    let mut own = Vec::with_capacity(wanted.updates);
    let mut last = 0;
    while own.len() < wanted.updates {
        let frame = body.frame().await.context("the watch ended early")??;
        let now = wanted.epoch.elapsed().as_nanos();
        let Some(data) = frame.data_ref() else { continue };
        pending.extend_from_slice(data);
        while let Some(end) = memchr::memchr(b'\n', &pending) {
            let line = std::str::from_utf8(&pending[..end])?;
            ensure!(line.starts_with(r#"{"type":"MODIFIED""#), "unexpected event {}", &line[..line.len().min(200)]);
            let rv = resource_version(line)?;
            ensure!(rv > last, "event {rv} after {last}");
            last = rv;
            let sent: u128 = part(line, r#""sent":""#)?.parse()?;
            own.push(now.saturating_sub(sent) as f64 / 1e6);
            received.deliveries.add_permits(1);
            pending.drain(..=end);
        }
    }
    received.latencies.lock().extend(own);
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
async fn grpc_watcher(mut body: Incoming, wanted: Wanted, received: &Received) -> anyhow::Result<()> {
    let mut pending = Vec::new();
    let mut own = Vec::with_capacity(wanted.updates);
    let mut last = 0;
    while own.len() < wanted.updates {
        let frame = body.frame().await.context("the watch ended early")??;
        let now = wanted.epoch.elapsed().as_nanos();
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
                own.push(now.saturating_sub(sent) as f64 / 1e6);
                received.deliveries.add_permits(1);
            }
        }
    }
    received.latencies.lock().extend(own);
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
