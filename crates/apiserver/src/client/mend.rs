//! Makes a client with its two background tasks. One looks for an apiserver that does not answer, the other for changed
//! configuration files. So the end of an outage is noticed at once, however long other tasks back off.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http::{Request, Response};
use tokio::sync::{oneshot, watch};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::body::UpstreamBody;
use super::call::{CallOptions, Identity};
use super::connect::Wanted;
use super::generation::Generation;
use super::request_body::{ReqBody, empty};
use super::settings::UpstreamConfig;
use super::source::ConfigSource;
use super::upstream::{Inner, Upstream};
use crate::error::{Cause, UpstreamError};
use crate::metrics::RequestVerb;
use informerd_lifecycle as lifecycle;

/// Time between two attempts to reach the apiserver, for the whole process.
const EVERY: Duration = Duration::from_secs(1);
/// Timeout of one attempt. Ordinary requests wait longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of concurrent attempts: one that hangs does not delay the next.
const AT_ONCE: usize = 3;
/// Pause after an exec plugin has failed, because every attempt runs it.
const AFTER_PLUGIN: Duration = Duration::from_secs(10);
/// Pause after a configuration that could not be read.
const AFTER_UNREADABLE: Duration = Duration::from_secs(5);

/// How long an answer over the open connection is waited for beyond [`PATIENCE`]. An apiserver that is slow is there: if its late
/// answers were not heard, it would be away again and again, and nobody would get anything from it.
const LATE_ANSWER: Duration = Duration::from_secs(12);

/// The same question over a connection that is open, asked at the same time as a new one is made: dials alone may fail. An answer
/// counts as heard, and does not replace the connections. Tells whether nothing has come in time.
pub(super) struct OverOpen(Option<oneshot::Receiver<bool>>);

/// Every identity may read it, it is the cheapest request for the apiserver, and it never waits in its queues. Its check of etcd
/// would take seconds while that has no leader, although the apiserver answers others.
const PATH: &str = "/livez?exclude=etcd";

// === impl Upstream ===

impl Upstream {
    /// Reads the configuration and the credentials (this runs an exec plugin); connects with the first request.
    pub async fn new(source: ConfigSource, config: UpstreamConfig) -> Result<Self, UpstreamError> {
        let upstream = Self::read(source, config).await?;
        // Both tasks end when the client is dropped.
        let (inner, sought) = (Arc::downgrade(&upstream.inner), upstream.inner.health.sought.subscribe());
        lifecycle::spawn("upstream-seek", seek(inner, sought));
        if !upstream.inner.current.load().files.is_empty() {
            lifecycle::spawn("upstream-files", follow(Arc::downgrade(&upstream.inner)));
        }
        Ok(upstream)
    }

    /// Creates a client with a configuration that never changes, and default settings.
    pub async fn from_config(config: kube::Config) -> Result<Self, UpstreamError> {
        Self::new(ConfigSource::Fixed(Box::new(config)), UpstreamConfig::default()).await
    }

    /// Something has come that is no answer to a request of anybody else.
    fn hears(&self) {
        self.inner.metrics.heard.set(Instant::now());
        self.inner.health.misses.answered();
    }
}

/// While the client looks for the apiserver, begins one attempt per second, at most [`AT_ONCE`] at once.
async fn seek(inner: Weak<Inner>, mut sought: watch::Receiver<bool>) {
    // The sender is owned by the client.
    while sought.wait_for(|sought| *sought).await.is_ok() {
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut attempts = FuturesUnordered::new();
        loop {
            let found = async { sought.wait_for(|sought| !*sought).await.is_ok() };
            tokio::select! {
                found = found => {
                    // The remaining attempts may still replace dead connections.
                    while attempts.next().await.is_some() {}
                    if found { break } else { return }
                }
                _ = tick.tick(), if attempts.len() < AT_ONCE => {
                    let Some(inner) = inner.upgrade() else { return };
                    attempts.push(attempt(Upstream { inner }));
                }
                Some(()) = attempts.next() => {}
            }
        }
    }
}

/// Replaces the connections, and sends a request on the new ones.
async fn attempt(upstream: Upstream) {
    upstream.inner.metrics.seeks.inc();
    upstream.check_files().await;
    let options = CallOptions::new(RequestVerb::Probe, "");
    let generation = upstream.inner.current.load_full();
    let own = generation.pool(Identity::Own);
    let (mut is_there, mut is_asked) = (false, false);
    let begun = Instant::now();
    let open = OverOpen::ask(&upstream, &generation);
    let asking = async {
        own.renew().await?;
        is_there = true;
        let request = upstream.prepare(&generation, Identity::Own, question()?, &options).await?;
        is_asked = true;
        own.send(request, &options).await
    };
    let result = timeout(PATIENCE, asking).await.unwrap_or_else(late);
    if result.is_err() {
        upstream.learn(&result, &options);
    }
    // Without our credentials, a connection that was made has not been asked.
    let is_miss = result.as_ref().is_err_and(is_silence) && (is_asked || !is_there);
    if is_there && result.is_err() && own.connections.connector.offers_http2() {
        // Whoever has shaken hands is there, however slow it is then. Without TLS, the kernel of a process that stands still makes
        // connections, too.
        upstream.hears();
    } else if is_miss && open.heard_nothing().await {
        upstream.inner.health.misses.missed(begun, upstream.inner.metrics.heard.get());
    }
    if is_there {
        // The connections of others are renewed before they are told that it answers. What comes of it says nothing about it.
        let others = [Identity::Bare, Identity::Stranger, Identity::Proxied].map(|identity| generation.pool(identity));
        let renewals = others.into_iter().filter(|pool| pool.connections.is_used()).map(|pool| pool.renew());
        timeout(PATIENCE, join_all(renewals)).await.ok();
    }
    if result.is_ok() {
        upstream.learn(&result, &options);
    }
    if matches!(result, Err(UpstreamError::Auth(_))) {
        sleep(AFTER_PLUGIN).await;
    }
}

// === impl OverOpen ===

impl OverOpen {
    pub(super) fn ask(upstream: &Upstream, generation: &Arc<Generation>) -> Self {
        if generation.pool(Identity::Own).connections.must_dial(Wanted::Any) {
            return Self(None);
        }
        let (upstream, generation) = (upstream.clone(), Arc::clone(generation));
        let (tell, told) = oneshot::channel();
        lifecycle::spawn("upstream-ask", async move { ask_over_open(&upstream, &generation, tell).await });
        Self(Some(told))
    }

    /// Whether nothing speaks over it, or there is none. `false` if it could not be asked, as while an exec plugin runs: the next
    /// attempts do not wait for that.
    async fn heard_nothing(self) -> bool {
        match self.0 {
            Some(told) => timeout(PATIENCE, told).await.is_ok_and(|told| told.unwrap_or(false)),
            None => true,
        }
    }

    /// Whether nothing answers over it in this time, or there is none.
    pub(super) async fn says_nothing_for(self, time: Duration) -> bool {
        match self.0 {
            Some(told) => !matches!(timeout(time, told).await, Ok(Ok(false))),
            None => true,
        }
    }
}

async fn ask_over_open(upstream: &Upstream, generation: &Generation, tell: oneshot::Sender<bool>) {
    let options = CallOptions::new(RequestVerb::Probe, "");
    let Ok(question) = question() else { return };
    // It may run an exec plugin, and what takes too long with that is no miss.
    let Ok(request) = upstream.prepare(generation, Identity::Own, question, &options).await else { return };
    let hear = |answer: &Result<Response<UpstreamBody>, UpstreamError>| {
        if answer.is_ok() {
            upstream.hears();
        }
    };
    let mut asked = pin!(generation.pool(Identity::Own).send(request, &options));
    if let Ok(answer) = timeout(PATIENCE, &mut asked).await {
        hear(&answer);
        tell.send(answer.is_err_and(|error| is_silence(&error))).ok();
        return;
    }
    tell.send(true).ok();
    if let Ok(answer) = timeout(LATE_ANSWER, asked).await {
        hear(&answer);
    }
}

fn question() -> Result<Request<ReqBody>, UpstreamError> {
    Request::get(PATH).body(empty()).map_err(|error| UpstreamError::Request(Cause::new(error)))
}

fn late(_: Elapsed) -> Result<Response<UpstreamBody>, UpstreamError> {
    Err(UpstreamError::Timeout { what: "looking for the apiserver", after: PATIENCE })
}

/// Whether nothing is there. A TLS handshake that fails for its content is of somebody, and without a file descriptor nobody was asked.
fn is_silence(error: &UpstreamError) -> bool {
    error.is_unreachable() && !error.is_of_tls_peer() && !error.is_of_this_process()
}

/// Reads the configuration again when one of its files changes.
async fn follow(inner: Weak<Inner>) {
    let mut pause = Duration::ZERO;
    loop {
        let Some(interval) = inner.upgrade().map(|inner| inner.config.check_interval) else { return };
        sleep(interval.max(pause).max(Duration::from_millis(100))).await;
        let Some(upstream) = inner.upgrade().map(|inner| Upstream { inner }) else { return };
        upstream.remember_cluster().await;
        let compared = {
            let mut reload = upstream.inner.reload.lock().await;
            upstream.compare_files(&mut reload).await
        };
        upstream.judge_candidate().await;
        pause = if compared.is_ok() { Duration::ZERO } else { AFTER_UNREADABLE };
    }
}
