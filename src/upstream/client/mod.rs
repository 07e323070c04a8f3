//! The client: HTTP/2 over TLS with as many connections as the streams need, HTTP/1.1 where there is no HTTP/2, our own
//! credentials or none, and credentials that are read anew when they change or are refused.

mod body;
mod call;
mod connect;
mod generation;
mod handshake;
mod health;
mod mend;
mod pool;
mod replay;
mod settings;
mod source;
mod spans;
mod warnings;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, HOST, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use tokio::sync::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tower::ServiceExt as _;
use tracing::Instrument as _;

pub use body::{ReqBody, UpstreamBody, empty, full};
pub use call::CallOptions;
pub use health::Health;
pub use pool::ConnectionId;
pub use settings::UpstreamConfig;
pub use source::{ConfigSource, UpstreamCertificates};
pub use warnings::Warnings;

use self::generation::Generation;
use self::health::Keeper;
use self::pool::Lease;
pub use super::error::{Cause, UpstreamError};
pub use super::metrics::{RequestSeries, RequestVerb, UpstreamMetrics};
use super::retries::Retries;

/// Names the daemons that a request has come through, each by a text of its own that is made at its start. A daemon that
/// receives its own requests leads to itself.
pub const VIA: HeaderName = HeaderName::from_static("x-informerd-via");

/// The client of one apiserver. Cloning shares connections, credentials and counters.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
}

/// As whom a request goes upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// With our client certificate, token or exec credentials, and the kubeconfig's impersonation.
    Own,
    /// With nothing of ours: the request carries its own `Authorization`. Not even on a connection with our client
    /// certificate, which the apiserver would take before a bearer token.
    Bare,
}

struct Inner {
    source: ConfigSource,
    config: UpstreamConfig,
    current: ArcSwap<Generation>,
    reload: Mutex<Reload>,
    metrics: Arc<UpstreamMetrics>,
    health: Arc<Keeper>,
    retries: Retries,
    /// API groups whose server refuses watch-lists, and when it last did.
    refusals: parking_lot::Mutex<HashMap<Arc<str>, Instant>>,
    warnings: Warnings,
    via: HeaderValue,
}

struct Reload {
    checked: Instant,
    reloaded: Option<Instant>,
    /// The last error that was logged.
    failed: Option<String>,
}

/// What the configuration is read from has changed, and cannot be read.
struct Unreadable;

/// A request of ours that the apiserver has not answered after this is sent anew, if its connection was replaced.
const OVERTAKEN: Duration = Duration::from_secs(2);

// === impl Upstream ===

impl Upstream {
    /// Reads the configuration and the credentials (an exec plugin runs now); connects with the first request.
    pub async fn new(source: ConfigSource, config: UpstreamConfig) -> Result<Self, UpstreamError> {
        // An error says that somebody else has installed a provider.
        rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
        let metrics = Arc::new(UpstreamMetrics::default());
        let loaded = source.load().await?;
        let health = Arc::new(Keeper::new());
        let first = Generation::build(loaded, &config, &metrics, &health, None)?;
        let upstream = Self {
            inner: Arc::new(Inner {
                source,
                config,
                current: ArcSwap::from_pointee(first),
                reload: Mutex::new(Reload { checked: Instant::now(), reloaded: None, failed: None }),
                metrics,
                health,
                retries: Retries::default(),
                refusals: parking_lot::Mutex::default(),
                warnings: Warnings::default(),
                via: HeaderValue::try_from(uuid::Uuid::new_v4().to_string())
                    .unwrap_or(HeaderValue::from_static("unknown")),
            }),
        };
        mend::start(&upstream);
        Ok(upstream)
    }

    /// With a configuration that never changes, and default settings.
    pub async fn from_config(config: kube::Config) -> Result<Self, UpstreamError> {
        Self::new(ConfigSource::Fixed(Box::new(config)), UpstreamConfig::default()).await
    }

    /// The certificates in use.
    pub fn certificates(&self) -> UpstreamCertificates {
        self.inner.current.load().certificates.clone()
    }

    /// `host:port` of the apiserver.
    pub fn authority(&self) -> Arc<str> {
        Arc::clone(&self.inner.current.load().authority)
    }

    /// Whether the last request got an answer, whatever it was.
    pub fn is_reachable(&self) -> bool {
        self.inner.health.is_reachable()
    }

    /// Whether the apiserver answers, since when, and why it does not.
    pub fn health(&self) -> Health {
        self.inner.health.health()
    }

    /// Moves when the apiserver answers again, and when there are new credentials: whoever backs off need not wait any
    /// longer.
    pub fn recoveries(&self) -> watch::Receiver<u64> {
        self.inner.health.recoveries()
    }

    /// Early attempts of those who back off.
    pub(super) fn retries(&self) -> &Retries {
        &self.inner.retries
    }

    pub fn metrics(&self) -> &Arc<UpstreamMetrics> {
        &self.inner.metrics
    }

    /// Sends a request; of its URI only path and query count. Any HTTP status is an `Ok`.
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

    /// [`Upstream::send`] with options. A GET without a body is sent again, once, when its connection breaks before the
    /// response, and when our credentials were refused but could be renewed.
    pub async fn send_with(
        &self,
        identity: Identity,
        mut request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let span = spans::begin(self, &mut request, options);
        let result = self.counted(identity, request, options).instrument(span.clone()).await;
        spans::end(&span, &result);
        result
    }

    async fn counted(
        &self,
        identity: Identity,
        request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        let result = match options.header_timeout {
            Some(limit) => timeout(limit, self.attempts(identity, request, options))
                .await
                .unwrap_or(Err(UpstreamError::Timeout { what: "the apiserver's answer", after: limit })),
            None => self.attempts(identity, request, options).await,
        };
        self.learn(&result, options);
        result
    }

    /// The one place that hears what every request has come to.
    fn learn<T>(&self, result: &Result<Response<T>, UpstreamError>, options: &CallOptions) {
        let code = result.as_ref().map_or(0, |response| response.status().as_u16());
        self.inner.metrics.count_request(options.verb, &options.resource, code);
        if result.is_ok() {
            self.inner.metrics.heard.set(Instant::now());
        }
        self.inner.health.learn(result, &self.inner.current.load().authority);
    }

    /// Sends a request that asks for another protocol, by HTTP/1.1 on a connection of its own. Where the response is a
    /// 101, `hyper::upgrade::on` gives its connection.
    pub async fn upgrade(
        &self,
        identity: Identity,
        mut request: Request<ReqBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        self.check_files().await;
        let generation = self.inner.current.load_full();
        let options = CallOptions::default();
        let span = spans::begin(self, &mut request, &options);
        let request = self.prepare(&generation, identity, request, &options).await?;
        let result = generation.pool(identity).upgrade(request).await;
        spans::end(&span, &result);
        self.learn(&result, &options);
        let refused = result.as_ref().is_ok_and(|response| response.status() == StatusCode::UNAUTHORIZED);
        if refused && identity == Identity::Own {
            self.renew(generation.number).await;
        }
        result
    }

    /// What every request of this process carries as [`VIA`].
    pub fn via(&self) -> &HeaderValue {
        &self.inner.via
    }

    /// Whether the server of an API group has refused a watch-list within this time.
    pub(super) fn refuses_watch_list(&self, group: &str, within: Duration) -> bool {
        self.inner.refusals.lock().get(group).is_some_and(|at| at.elapsed() < within)
    }

    pub(super) fn watch_list_refused(&self, group: &Arc<str>) {
        self.inner.refusals.lock().insert(Arc::clone(group), Instant::now());
    }

    /// What the apiserver warns of on reads.
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
            if generation.pool(identity).must_dial() && self.check_files().await {
                generation = self.inner.current.load_full();
            }
            let prepared = self.prepare(&generation, identity, next, options).await?;
            let pool = generation.pool(identity);
            let overtaken = overtaken(pool.renewed());
            let result = tokio::select! {
                result = pool.send(prepared, options) => result,
                // Its connection is one of those that were replaced, and may never bring the answer.
                () = overtaken, if copy.is_some() && options.verb != RequestVerb::Forward => {
                    Err(UpstreamError::Request(Cause::new("the apiserver has begun to answer others")))
                }
            };
            match result {
                Ok(response)
                    if response.status() == StatusCode::UNAUTHORIZED && identity == Identity::Own && !renewed =>
                {
                    renewed = true;
                    if !self.renew(generation.number).await {
                        return Ok(response);
                    }
                    request = copy.as_ref().and_then(copy_of);
                    if request.is_none() {
                        return Ok(response);
                    }
                }
                Ok(response) => return Ok(response),
                Err(error) => {
                    if error.is_about_certificates() {
                        self.check_files().await;
                    }
                    // Only what may have met a dying connection is worth a second attempt, and only once.
                    match error {
                        UpstreamError::Request(_) if copy.is_some() => request = copy.take(),
                        error => return Err(error),
                    }
                }
            }
        }
        // The loop leaves only by return while it has a request.
        Err(UpstreamError::Busy)
    }

    async fn prepare(
        &self,
        generation: &Generation,
        identity: Identity,
        request: Request<ReqBody>,
        options: &CallOptions,
    ) -> Result<Request<ReqBody>, UpstreamError> {
        let (mut head, body) = request.into_parts();
        head.uri = generation.uri(head.uri.path_and_query())?;
        head.headers.remove(HOST);
        head.headers.append(VIA, self.inner.via.clone());
        if options.verb != RequestVerb::Forward && !head.headers.contains_key(USER_AGENT) {
            let agent = HeaderValue::from_str(&self.inner.config.user_agent);
            head.headers.insert(USER_AGENT, agent.unwrap_or(HeaderValue::from_static("informerd")));
        }
        if identity == Identity::Own {
            head.headers.remove(AUTHORIZATION);
            let mut bare = Request::new(http_body_util::Empty::new());
            *bare.headers_mut() = head.headers;
            let authorised = generation.auth.clone().oneshot(bare).await;
            head.headers = authorised.map_err(|error| UpstreamError::Auth(Cause::new(error)))?.into_body();
        }
        Ok(Request::from_parts(head, body))
    }

    /// Looks for changed files if the last look is old enough. True when they had changed and are in use now.
    async fn check_files(&self) -> bool {
        let mut reload = self.inner.reload.lock().await;
        if reload.checked.elapsed() < self.inner.config.check_interval {
            return false;
        }
        self.compare_files(&mut reload).await.unwrap_or(false)
    }

    /// Reads the configuration anew if what it is read from has changed; whether it had.
    ///
    /// # Errors
    /// When it has changed and cannot be read.
    async fn compare_files(&self, reload: &mut Reload) -> Result<bool, Unreadable> {
        reload.checked = Instant::now();
        let current = self.inner.current.load_full();
        match self.inner.source.fingerprint().await {
            Ok(fingerprint) if fingerprint == current.fingerprint => {
                reload.failed = None;
                Ok(false)
            }
            Ok(_) => self.reload(reload, &current).await.then_some(true).ok_or(Unreadable),
            Err(error) => {
                reload.failed(&error);
                Err(Unreadable)
            }
        }
    }

    async fn renew(&self, seen: u64) -> bool {
        let mut reload = self.inner.reload.lock().await;
        let current = self.inner.current.load_full();
        if current.number > seen {
            return true;
        }
        if reload.reloaded.is_some_and(|at| at.elapsed() < self.inner.config.reload_interval) {
            return false;
        }
        self.reload(&mut reload, &current).await
    }

    async fn reload(&self, state: &mut Reload, current: &Generation) -> bool {
        state.reloaded = Some(Instant::now());
        let inner = &self.inner;
        let built = match inner.source.load().await {
            Ok(loaded) => Generation::build(loaded, &inner.config, &inner.metrics, &inner.health, Some(current)),
            Err(error) => Err(error),
        };
        match built {
            Ok(next) => {
                state.failed = None;
                inner.metrics.credential_reloads.inc();
                let changed = next.fingerprint != current.fingerprint;
                inner.current.store(Arc::new(next));
                if changed {
                    tracing::info!("the upstream configuration has changed and is in use");
                    inner.health.renewed();
                }
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
    /// Says why the configuration in use stays the one before, once for each reason.
    fn failed(&mut self, error: &UpstreamError) {
        let text = error.to_string();
        if self.failed.as_ref() != Some(&text) {
            tracing::warn!(error = text, "cannot read the upstream configuration, keeping the last one");
            self.failed = Some(text);
        }
    }
}

/// Returns once the connections were replaced, but not before a request has had [`OVERTAKEN`] to be answered.
async fn overtaken(mut renewed: watch::Receiver<()>) {
    let asked = Instant::now();
    if renewed.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    sleep_until(asked + OVERTAKEN).await;
}

/// Returns a copy of the request if it is safe to send it twice.
fn copy_of(request: &Request<ReqBody>) -> Option<Request<ReqBody>> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !safe || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}
