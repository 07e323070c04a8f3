//! The client itself: how a request is sent, and how its configuration is read again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument as _;

use super::body::UpstreamBody;
use super::call::{CallOptions, Identity};
use super::cluster::{Candidate, Cluster};
use super::connect::Wanted;
use super::generation::Generation;
use super::health::{Health, Keeper};
use super::replay::copy_of;
use super::request_body::ReqBody;
use super::settings::{AGENT, UpstreamConfig};
use super::source::{ConfigSource, UpstreamCertificates};
use super::spans;
use super::warnings::Warnings;
use crate::error::{Cause, UpstreamError};
use crate::meter::Meter;
use crate::metrics::{RequestVerb, UpstreamMetrics};
use crate::retries::Retries;

/// Names the daemons that a request has passed. Each daemon uses a value of its own, created at its start. If a daemon
/// receives its own value, it forwards to itself.
pub const VIA: HeaderName = HeaderName::from_static("x-informerd-via");

/// The client of one apiserver. Cloning shares connections, credentials and counters.
#[derive(Clone)]
pub struct Upstream {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) source: ConfigSource,
    pub(super) config: UpstreamConfig,
    pub(super) current: ArcSwap<Generation>,
    pub(super) reload: Mutex<Reload>,
    pub(super) metrics: Arc<UpstreamMetrics>,
    pub(super) health: Arc<Keeper>,
    retries: Retries,
    /// API groups whose server refuses watch-lists, each with the time of the last refusal.
    refusals: parking_lot::Mutex<HashMap<Arc<str>, Instant>>,
    /// Whether it marks the end of watch-lists, or is taken to. `None` before the first is asked for.
    marks: parking_lot::Mutex<Option<bool>>,
    warnings: Warnings,
    via: HeaderValue,
    /// What is known of the cluster, and whether the configuration leads to another one.
    pub(super) cluster: Cluster,
}

pub(super) struct Reload {
    checked: Instant,
    reloaded: Option<Instant>,
    /// The last error that was logged.
    failed: Option<String>,
    /// The configuration that names another apiserver, which must be shown to be of the same cluster before it is used.
    pub(super) candidate: Option<Candidate>,
}

/// The source of the configuration has changed, but it cannot be read.
pub(super) struct Unreadable;

/// If the apiserver has not answered one of our own requests after this time, and its connection was replaced, the
/// request is sent again.
const OVERTAKEN: Duration = Duration::from_secs(2);

// === impl Upstream ===

impl Upstream {
    /// As [`Self::new`], without the background tasks.
    pub(super) async fn read(source: ConfigSource, config: UpstreamConfig) -> Result<Self, UpstreamError> {
        // An error means that another provider is already installed.
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        let metrics = Arc::new(UpstreamMetrics::default());
        let loaded = source.load().await?;
        let health = Arc::new(Keeper::new());
        let first = Generation::build(loaded, &config, &metrics, &health, None)?;
        Ok(Self {
            inner: Arc::new(Inner {
                source,
                config,
                current: ArcSwap::from_pointee(first),
                reload: Mutex::new(Reload { checked: Instant::now(), reloaded: None, failed: None, candidate: None }),
                metrics,
                health,
                retries: Retries::default(),
                refusals: parking_lot::Mutex::default(),
                marks: parking_lot::Mutex::default(),
                warnings: Warnings::default(),
                via: HeaderValue::try_from(uuid::Uuid::new_v4().to_string())
                    .unwrap_or(HeaderValue::from_static("unknown")),
                cluster: Cluster::default(),
            }),
        })
    }

    /// The certificates in use.
    pub fn certificates(&self) -> UpstreamCertificates {
        self.inner.current.load().certificates.clone()
    }

    /// The header `Authorization` of our own requests, if the apiserver knows us by nothing else. No exec plugin runs for it.
    pub async fn authorization(&self) -> Option<HeaderValue> {
        self.inner.current.load_full().credentials.authorization().await
    }

    /// `host:port` of the apiserver.
    pub fn authority(&self) -> Arc<str> {
        Arc::clone(&self.inner.current.load().endpoint.authority)
    }

    /// What a URL of an answer is for our clients: without the server's address, and without the path that its URL has.
    /// `None` if the URL is not of this server, or not below that path.
    pub fn localized(&self, url: &str) -> Option<String> {
        self.inner.current.load().endpoint.localized(url)
    }

    /// How many forwarded requests of each identity may be in flight.
    pub fn most_forwarded(&self) -> usize {
        self.inner.config.most_forwarded()
    }

    /// Whether the last request got any answer, even an error status.
    pub fn is_reachable(&self) -> bool {
        self.inner.health.is_reachable()
    }

    /// Whether anything has answered at the apiserver's address since the process started: with any status, or with a
    /// TLS handshake that failed for its content. It stays true.
    pub fn has_heard(&self) -> bool {
        self.inner.health.heard.load(Ordering::Acquire)
    }

    /// Whether the apiserver answers, since when, and why not.
    pub fn health(&self) -> Health {
        self.inner.health.health()
    }

    /// Changes when the apiserver answers again, and when there are new credentials. Tasks that are in backoff need not
    /// wait any longer then.
    pub fn recoveries(&self) -> watch::Receiver<u64> {
        self.inner.health.recoveries.subscribe()
    }

    /// Changes when the apiserver answers after a connection to it broke, even if no request went unanswered meanwhile.
    pub fn found(&self) -> watch::Receiver<u64> {
        self.inner.health.found.subscribe()
    }

    /// Becomes true once the configuration names an apiserver of another cluster, or one that could not be shown to be of
    /// the same cluster for a minute. It is not used: whatever was read from the old one says nothing about it.
    pub fn moved(&self) -> watch::Receiver<bool> {
        self.inner.cluster.moved.subscribe()
    }

    /// The early attempts of reflectors that are in backoff.
    pub fn retries(&self) -> &Retries {
        &self.inner.retries
    }

    pub fn metrics(&self) -> &Arc<UpstreamMetrics> {
        &self.inner.metrics
    }

    /// Sends a request; only the path and query of its URI are used. Any HTTP status is an `Ok`.
    ///
    /// # Errors
    /// No connection, no response, or no credentials.
    pub async fn send(
        &self,
        identity: Identity,
        request: Request<ReqBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        self.send_with(identity, request, &CallOptions::default()).await
    }

    /// [`Upstream::send`] with options. A GET without a body is sent again, once, if its connection breaks before the
    /// response. It is also sent again if our credentials were refused but could be renewed.
    pub async fn send_with(
        &self,
        identity: Identity,
        mut request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let span = spans::begin(|| self.authority(), &mut request, options);
        // Boxed: whatever may need the apiserver would otherwise have room for it all the time.
        let result = Box::pin(self.counted(identity, request, options)).instrument(span.clone()).await;
        spans::end(&span, &result);
        result
    }

    async fn counted(
        &self,
        identity: Identity,
        request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let attempts = self.doubting(self.attempts(identity, request, options), options.verb);
        let result = match options.header_timeout {
            Some(limit) => timeout(limit, attempts)
                .await
                .unwrap_or(Err(UpstreamError::Timeout { what: "the apiserver's answer", after: limit })),
            None => attempts.await,
        };
        self.learn(&result, options);
        let meter = self.meter(options).cloned();
        result.map(|response| response.map(|body| body.metered(meter)))
    }

    fn meter<'m>(&'m self, options: &'m CallOptions) -> Option<&'m Arc<Meter>> {
        let others = || (options.verb != RequestVerb::Forward).then_some(&self.inner.metrics.others);
        options.meter.as_ref().or_else(others)
    }

    /// Records the outcome of every request; this is the only place that does.
    pub(super) fn learn<T>(&self, result: &Result<Response<T>, UpstreamError>, options: &CallOptions) {
        let code = result.as_ref().map_or(0, |response| response.status().as_u16());
        self.inner.metrics.count_request(options.verb, &options.resource, code);
        if result.is_ok() {
            self.inner.metrics.heard.set(Instant::now());
            if let Some(meter) = self.meter(options) {
                meter.answered();
            }
        }
        if (200..300).contains(&code) {
            self.inner.cluster.answered.store(true, Ordering::Relaxed);
        }
        self.inner.health.learn(result, &self.inner.current.load().endpoint.authority);
    }

    /// Sends an upgrade request by HTTP/1.1, on a connection of its own. If the response is a 101, `hyper::upgrade::on`
    /// returns its connection. It counts as a forwarded request until then. `limit`: how long the headers of the
    /// response may take.
    pub async fn upgrade(
        &self,
        identity: Identity,
        mut request: Request<ReqBody>,
        limit: Duration,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        self.check_files().await;
        let generation = self.inner.current.load_full();
        let options = CallOptions::default();
        let span = spans::begin(|| self.authority(), &mut request, &options);
        let request = self.prepare(&generation, identity, request, &options).await?;
        let answered = timeout(limit, generation.pool(identity).upgrade(request)).await;
        // Perhaps of a pod behind the apiserver: it says nothing about the apiserver.
        let is_of_pod = matches!(&answered, Err(_) | Ok(Err(UpstreamError::Request(_))));
        let late = |_| Err(UpstreamError::Timeout { what: "the apiserver's answer", after: limit });
        let result = answered.unwrap_or_else(late);
        spans::end(&span, &result);
        if is_of_pod {
            self.inner.metrics.count_request(options.verb, &options.resource, 0);
            return result;
        }
        self.learn(&result, &options);
        let refused = result.as_ref().is_ok_and(|response| response.status() == StatusCode::UNAUTHORIZED);
        if refused && identity == Identity::Own {
            self.renew(&generation).await;
        }
        result
    }

    /// The value of [`VIA`] in every request of this process.
    pub fn via(&self) -> &HeaderValue {
        &self.inner.via
    }

    /// Whether the server of an API group has refused a watch-list within this time.
    pub fn refuses_watch_list(&self, group: &str, within: Duration) -> bool {
        self.inner.refusals.lock().get(group).is_some_and(|at| at.elapsed() < within)
    }

    pub fn watch_list_refused(&self, group: &Arc<str>) {
        self.inner.refusals.lock().insert(Arc::clone(group), Instant::now());
    }

    /// Whether the apiserver is taken to mark the end of watch-lists of its built-in types: the last one was marked, or somebody
    /// else is finding out.
    pub fn marks_watch_lists(&self) -> bool {
        let mut marks = self.inner.marks.lock();
        let known = marks.unwrap_or(false);
        // Whoever asks first finds out.
        *marks = Some(marks.unwrap_or(true));
        known
    }

    pub fn watch_list_was_marked(&self, was: bool) {
        *self.inner.marks.lock() = Some(was);
    }

    /// The apiserver's warnings about reads.
    pub fn warnings(&self) -> &Warnings {
        &self.inner.warnings
    }

    async fn attempts(
        &self,
        identity: Identity,
        request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let mut copy = copy_of(&request);
        let mut request = Some(request);
        let mut renewed = false;
        while let Some(next) = request.take() {
            let mut generation = self.inner.current.load_full();
            if generation.pool(identity).connections.must_dial(Wanted::Any) && self.check_files().await {
                generation = self.inner.current.load_full();
            }
            let prepared = self.prepare(&generation, identity, next, options).await?;
            let pool = generation.pool(identity);
            let overtaken = overtaken(pool.renewed.subscribe());
            let result = tokio::select! {
                result = pool.send(prepared, options) => result,
                // Its connection is one of those that were replaced, and may never deliver the answer.
                () = overtaken, if copy.is_some() && options.verb != RequestVerb::Forward => {
                    Err(UpstreamError::Request(Cause::new("the apiserver has begun to answer others")))
                }
            };
            match result {
                Ok(response)
                    if response.status() == StatusCode::UNAUTHORIZED && identity == Identity::Own && !renewed =>
                {
                    renewed = true;
                    if self.renew(&generation).await {
                        request = copy.as_ref().and_then(copy_of);
                    }
                    if request.is_none() {
                        return Ok(response);
                    }
                }
                Ok(response) => return Ok(response),
                Err(error) => {
                    if error.is_about_certificates() {
                        self.check_files().await;
                    }
                    // Only a request that may have hit a dying connection is sent again, and only once.
                    match error {
                        UpstreamError::Request(_) if copy.is_some() => request = copy.take(),
                        error => return Err(error),
                    }
                }
            }
        }
        // While it has a request, the loop is left only by return.
        Err(UpstreamError::Busy)
    }

    pub(super) async fn prepare(
        &self,
        generation: &Generation,
        identity: Identity,
        request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Request<ReqBody>, UpstreamError> {
        let (mut head, body) = request.into_parts();
        head.uri = generation.endpoint.uri(head.uri.path_and_query())?;
        head.headers.remove(HOST);
        head.headers.append(VIA, self.inner.via.clone());
        if options.verb != RequestVerb::Forward && !head.headers.contains_key(USER_AGENT) {
            head.headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        }
        if identity == Identity::Own {
            head.headers.remove(AUTHORIZATION);
            let applied = generation.credentials.apply(&mut head.headers).await;
            applied.map_err(|error| UpstreamError::Auth(Cause::new(error)))?;
        }
        Ok(Request::from_parts(head, body))
    }

    /// Checks the files for changes if the last check is old enough. Returns true if they had changed and are now in
    /// use.
    pub(super) async fn check_files(&self) -> bool {
        let mut reload = self.inner.reload.lock().await;
        if reload.checked.elapsed() < self.inner.config.check_interval {
            return false;
        }
        self.compare_files(&mut reload).await.unwrap_or(false)
    }

    /// Reads the configuration again if its source has changed, and returns whether it had.
    ///
    /// # Errors
    /// The source has changed and cannot be read.
    pub(super) async fn compare_files(&self, reload: &mut Reload) -> Result<bool, Unreadable> {
        reload.checked = Instant::now();
        let current = self.inner.current.load_full();
        match self.inner.source.fingerprint().await {
            Ok(fingerprint) if fingerprint == current.fingerprint => {
                (reload.failed, reload.candidate) = (None, None);
                Ok(false)
            }
            Ok(fingerprint) if reload.candidate.as_ref().is_some_and(|next| next.is_of(fingerprint)) => Ok(false),
            Ok(_) => match self.reload(reload, &current).await {
                false if reload.candidate.is_none() => Err(Unreadable),
                is_used => Ok(is_used),
            },
            Err(error) => {
                reload.failed(&error);
                Err(Unreadable)
            }
        }
    }

    /// Reads the configuration again unless another has replaced the one that was used. Returns whether there is another.
    async fn renew(&self, used: &Arc<Generation>) -> bool {
        let mut reload = self.inner.reload.lock().await;
        let current = self.inner.current.load_full();
        if !Arc::ptr_eq(&current, used) {
            return true;
        }
        if reload.reloaded.is_some_and(|at| at.elapsed() < self.inner.config.reload_interval) {
            return false;
        }
        self.reload(&mut reload, &current).await
    }

    pub(super) fn adopt(&self, current: &Generation, next: Arc<Generation>) {
        let inner = &self.inner;
        inner.metrics.credential_reloads.inc();
        let changed = next.fingerprint != current.fingerprint;
        inner.current.store(next);
        if changed {
            tracing::info!("the upstream configuration has changed and is in use");
            inner.health.recoveries.send_modify(|count| *count += 1);
        }
    }

    async fn reload(&self, state: &mut Reload, current: &Generation) -> bool {
        state.reloaded = Some(Instant::now());
        let inner = &self.inner;
        let built = match inner.source.load().await {
            Ok(loaded) => Generation::build(loaded, &inner.config, &inner.metrics, &inner.health, Some(current)),
            Err(error) => Err(error),
        };
        match built {
            Ok(next) if inner.cluster.must_be_shown(&inner.source, current, &next) => {
                (state.failed, state.candidate) = (None, Some(Candidate::new(next, state.candidate.take())));
                false
            }
            Ok(next) => {
                (state.failed, state.candidate) = (None, None);
                self.adopt(current, Arc::new(next));
                true
            }
            Err(error) => {
                state.failed(&error);
                false
            }
        }
    }
}

// === impl Reload ===

impl Reload {
    /// Logs why the earlier configuration stays in use, once for each reason.
    fn failed(&mut self, error: &UpstreamError) {
        self.candidate = None;
        let text = error.to_string();
        if self.failed.as_ref() != Some(&text) {
            tracing::warn!(error = text, "cannot read the upstream configuration, keeping the last one");
            self.failed = Some(text);
        }
    }
}

/// Returns once the connections were replaced, but gives the request at least two seconds to be answered.
async fn overtaken(mut renewed: watch::Receiver<()>) {
    let asked = Instant::now();
    if renewed.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    sleep_until(asked + OVERTAKEN).await;
}
