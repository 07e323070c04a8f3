//! The forwarder. It decides how and with which identity a request is sent, and what can be learned from the answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, UPGRADE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use moka::future::Cache;
use tokio::time::sleep;

use super::admission::{Admission, Admitted, Refused, Whose, Why};
use super::coalesce::Coalescer;
use super::discovery::{Document, DocumentKey, MAX_DOCUMENT};
use super::error::ForwardError;
use super::headers::{fits, say_where_from, strip_forwarded, strip_request, strip_response};
use super::identity::{self, LendIdentity};
use super::metrics::ForwardMetrics;
use super::observe::{Observation, RevisionObserver};
use super::paced::Pace;
use super::parts::{answer, boxed, kept, rebuild, resource_of};
use super::places::{Client, Held, Places};
use super::shared::{Buffered, ReadKey, SharedRead, collect};
use super::tunnel::Tunnel;
use super::{BoxError, ForwardBody};
use crate::apiserver::client::{CallOptions, Cause, Identity, ReqBody, Upstream, UpstreamBody, empty};
use crate::apiserver::{RequestVerb, UpstreamError};
use crate::auth::wants_upgrade;
use crate::memory::Ledger;
use crate::meta::{RequestInfo, Verb};

#[derive(Clone, Debug)]
pub struct ForwardConfig {
    pub lend: LendIdentity,
    /// How long the headers of the answer to a plain get or list, or to an upgrade, may take. The apiserver's own limit is 60 s.
    pub read_timeout: Duration,
    /// The largest body of a shared read. If the body is larger, or the ledger has no memory to spare, every client
    /// reads for itself. Default 32 MiB.
    pub share_limit: usize,
    /// Accounts for the memory of all answers in flight.
    pub ledger: Ledger,
    /// The bytes that one answer may hold while its client reads it. This much, plus what the HTTP client reads ahead,
    /// is reserved before the request is sent. `None`, the default, sets no limit.
    pub window: Option<usize>,
    /// The most bytes of cached discovery and OpenAPI documents. Default 64 MiB.
    pub documents: u64,
    /// Whether trusted clients get documents from the cache while the apiserver does not answer.
    pub old_documents: bool,
}

/// The sender of a request, as far as the connection identifies it.
#[derive(Clone, Debug)]
pub struct Sender {
    /// `None` on a Unix socket.
    pub address: Option<IpAddr>,
    /// Its credentials were accepted, or it is trusted. See [`Observation`].
    pub known: bool,
    /// The apiserver accepts its token, as far as that is known.
    pub accepted: bool,
    /// It may open sessions in pods with our identity if it has no credentials of its own.
    pub sessions: bool,
    pub client: Client,
}

/// Who asks for what, and as whom that is sent to the apiserver.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    pub(super) identity: Identity,
    pub(super) info: &'a RequestInfo,
    pub(super) sender: &'a Sender,
}

/// Sends requests that are not served from a cache to the apiserver. Clones share it.
#[derive(Clone)]
pub struct Forward {
    pub(super) inner: Arc<Inner>,
}

/// The apiserver's answer.
pub struct Answer {
    pub response: Response<ForwardBody>,
    /// For a 101: the tunnel, which must be run once the response is sent.
    pub tunnel: Option<Tunnel>,
}

pub(super) struct Inner {
    upstream: Upstream,
    pub(super) config: ForwardConfig,
    pub(super) observer: Arc<dyn RevisionObserver>,
    pub(super) reads: Coalescer<ReadKey, Result<SharedRead, ForwardError>>,
    documents: Cache<DocumentKey, Arc<Document>>,
    pub(super) admission: Admission,
    pub(super) metrics: ForwardMetrics,
}

// === impl Forward ===

impl Forward {
    pub fn new(config: ForwardConfig, upstream: Upstream, observer: Arc<dyn RevisionObserver>) -> Self {
        let weight = |key: &DocumentKey, document: &Arc<Document>| {
            u32::try_from(key.size() + document.size()).unwrap_or(u32::MAX)
        };
        let mut documents = Cache::builder().max_capacity(config.documents).weigher(weight);
        if !config.old_documents {
            documents = documents.time_to_idle(Duration::from_secs(3600));
        }
        let documents = documents.build();
        let places = Places::new(upstream.most_forwarded(), config.ledger.clone());
        let metrics = ForwardMetrics::default();
        let admission = Admission::new(Pace::new(places, config.window), &metrics);
        let reads = Coalescer::new();
        Self { inner: Arc::new(Inner { upstream, config, observer, reads, documents, admission, metrics }) }
    }

    /// The failure of every request while nothing is where the apiserver should be. `None` while something is.
    pub fn away(&self) -> Option<ForwardError> {
        self.inner.reaches().err()
    }

    pub fn metrics(&self) -> &ForwardMetrics {
        &self.inner.metrics
    }

    /// Ends the answers whose clients have stopped reading. For use when memory is short.
    pub fn hurry(&self) {
        self.inner.admission.hurry(Whose::All);
    }

    /// Ends the answers whose clients have read nothing for this long. Runs forever.
    pub async fn give_up(self, patience: Duration) {
        loop {
            sleep(patience / 4).await;
            self.inner.admission.give_up(patience);
        }
    }

    /// Forwards a request. `info` was parsed from it. Equal plain gets and lists that wait at the same time share one
    /// upstream read. Discovery documents are revalidated instead of read again. An upgrade becomes a tunnel.
    ///
    /// # Errors
    /// The request may not be forwarded, or the apiserver gave no answer.
    pub async fn forward<B>(
        &self,
        request: Request<B>,
        info: &RequestInfo,
        sender: Sender,
    ) -> Result<Answer, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.forward_as(None, request.map(boxed), info, sender).await.inspect_err(|error| self.count(error))
    }

    /// Like [`Self::forward`], but never with our identity, whatever the configuration lends. The request is sent with
    /// its own credentials, or anonymously if it has none.
    ///
    /// # Errors
    /// The apiserver gave no answer.
    pub async fn forward_as_client<B>(
        &self,
        request: Request<B>,
        info: &RequestInfo,
        sender: Sender,
    ) -> Result<Answer, ForwardError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let identity = Some(identity::of_client(sender.accepted, info));
        self.forward_as(identity, request.map(boxed), info, sender).await.inspect_err(|error| self.count(error))
    }

    fn count(&self, error: &ForwardError) {
        if matches!(error, ForwardError::Memory { .. }) {
            self.inner.config.ledger.count_refused();
        }
    }

    async fn forward_as(
        &self,
        identity: Option<Identity>,
        mut request: Request<ReqBody>,
        info: &RequestInfo,
        sender: Sender,
    ) -> Result<Answer, ForwardError> {
        if request.method() == Method::CONNECT || request.uri().path_and_query().is_none() {
            return Err(ForwardError::BadRequest("the target is no path"));
        }
        let upgrade = wants_upgrade(request.headers()).then(|| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        let may_be_old = identity.is_none() && self.inner.config.old_documents;
        let identity = match identity {
            Some(identity) => identity,
            None => identity::choose(self.inner.config.lend, sender.sessions, info, &head)?,
        };
        let asking = Asking { identity, info, sender: &sender };
        let protocols: Vec<HeaderValue> = head.headers.get_all(UPGRADE).iter().cloned().collect();
        strip_request(&mut head.headers);
        if identity == Identity::Own {
            strip_forwarded(&mut head.headers);
        }
        say_where_from(&mut head.headers, sender.address);
        if !fits(&head) {
            return Err(ForwardError::LargeHead);
        }
        if let Some(client) = upgrade {
            for protocol in protocols {
                head.headers.append(UPGRADE, protocol);
            }
            head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            return self.inner.upgrade(head, body, asking, client).await;
        }
        let response = if !body.is_end_stream() {
            self.inner.fetch(head, body, asking).await
        } else if let Some(key) = DocumentKey::of(&head, identity) {
            self.inner.document(key, head, asking, may_be_old).await
        } else {
            self.read(head, asking).await
        };
        Ok(Answer { response: self.inner.admission.pace.answer(response?, Some(&sender.client)), tunnel: None })
    }
}

// === impl Inner ===

impl Inner {
    /// Sends one request to the apiserver, once there is room for it, and observes the answer.
    pub(super) async fn fetch(
        &self,
        head: Parts,
        body: ReqBody,
        asking: Asking<'_>,
    ) -> Result<Response<ForwardBody>, ForwardError> {
        self.reaches()?;
        let admitted = self.admit(asking, body.size_hint().upper()).await?;
        self.send(admitted, head, body, asking).await
    }

    pub(super) async fn send(
        &self,
        admitted: Admitted,
        head: Parts,
        body: ReqBody,
        Asking { identity, info, sender }: Asking<'_>,
    ) -> Result<Response<ForwardBody>, ForwardError> {
        self.reaches()?;
        let observation = Observation::begin(&self.observer, info, &head, sender.known);
        let mut options = CallOptions::new(RequestVerb::Forward, resource_of(info));
        if info.is_plain_read() && info.verb != Verb::Watch {
            options = options.header_timeout(self.config.read_timeout);
        }
        let sent = self.upstream.send_with(identity, rebuild(head, body), &options);
        // Nobody knows what has become of any other request.
        let answer = if info.is_plain_read() {
            tokio::select! {
                biased;
                answer = sent => answer,
                () = self.upstream.gone() => Err(self.silence()),
            }
        } else {
            sent.await
        };
        match answer {
            Ok(response) => Ok(self.answered(response, observation, admitted)),
            Err(error) => {
                let error = self.failed(&error);
                if let (Some(observation), ForwardError::Unreachable { .. } | ForwardError::Busy { .. }) =
                    (observation, &error)
                {
                    observation.unsent();
                }
                Err(error)
            }
        }
    }

    /// Prepares the headers of an answer for the client.
    fn localize(&self, headers: &mut HeaderMap) {
        strip_response(headers, &|url| self.upstream.localized(url));
    }

    /// The apiserver's answer, as the client gets it.
    fn answered(
        &self,
        response: Response<UpstreamBody>,
        observation: Option<Observation>,
        admitted: Admitted,
    ) -> Response<ForwardBody> {
        let (mut head, body) = response.into_parts();
        self.localize(&mut head.headers);
        let mut body = ForwardBody::new(body.map_err(Into::into));
        if let Some(observation) = observation {
            body = observation.answered(head.status, &head.headers, body);
        }
        kept(answer(head.status, head.headers, body), admitted)
    }

    async fn admit(&self, asking: Asking<'_>, length: Option<u64>) -> Result<Admitted, ForwardError> {
        let Asking { info, sender, .. } = asking;
        let admitted = self.admission.admit(&sender.client, info, length, false).await;
        admitted.map_err(|refused| self.refused(refused))
    }

    pub(super) fn refused(&self, refused: Refused) -> ForwardError {
        let authority = self.upstream.authority().to_string();
        match refused.why {
            Why::Memory => ForwardError::Memory { authority },
            Why::Busy => ForwardError::Busy { authority },
        }
    }

    async fn upgrade(
        &self,
        head: Parts,
        body: ReqBody,
        asking: Asking<'_>,
        client: OnUpgrade,
    ) -> Result<Answer, ForwardError> {
        self.reaches()?;
        let admitted = self.admit(asking, body.size_hint().upper()).await?;
        let Asking { identity, info, sender } = asking;
        let observation = Observation::begin(&self.observer, info, &head, sender.known);
        let answered = self.upstream.upgrade(identity, rebuild(head, body), self.config.read_timeout).await;
        let mut response = answered.map_err(|error| self.failed(&error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let response = self.answered(response, observation, admitted);
            return Ok(Answer { response: self.admission.pace.answer(response, Some(&sender.client)), tunnel: None });
        }
        self.metrics.upgrades.inc();
        let upstream = hyper::upgrade::on(&mut response);
        let mut headers = std::mem::take(response.headers_mut());
        let protocols: Vec<HeaderValue> = headers.get_all(UPGRADE).iter().cloned().collect();
        self.localize(&mut headers);
        for protocol in protocols {
            headers.append(UPGRADE, protocol);
        }
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        let response = answer(StatusCode::SWITCHING_PROTOCOLS, headers, empty());
        Ok(Answer {
            response,
            tunnel: Some(Tunnel { client, upstream, _observation: observation.map(Observation::upgraded) }),
        })
    }

    async fn document(
        &self,
        key: DocumentKey,
        mut head: Parts,
        asking: Asking<'_>,
        may_be_old: bool,
    ) -> Result<Response<ForwardBody>, ForwardError> {
        let asked = head.headers.get(IF_NONE_MATCH).cloned();
        let kept = self.documents.get(&key).await;
        if let Some(etag) = kept.as_ref().and_then(|kept| kept.etag.clone()) {
            head.headers.insert(IF_NONE_MATCH, etag);
        }
        let response = match (self.fetch(head, empty(), asking).await, &kept) {
            (Ok(response), _) => response,
            (Err(error), Some(kept)) if may_be_old && error.is_silence() => {
                self.metrics.documents_old.inc();
                return Ok(kept.old(asked.as_ref()));
            }
            (Err(error), _) => return Err(error),
        };
        // What its client has of the memory, until it has taken the answer.
        let held = response.extensions().get::<Arc<Held>>().cloned();
        let etag = response.headers().get(ETAG).cloned();
        let mut answer = match (response.status(), kept) {
            (StatusCode::NOT_MODIFIED, Some(kept)) => {
                self.metrics.documents_confirmed.inc();
                kept.confirm();
                kept.answer(asked.as_ref(), response.headers())
            }
            (StatusCode::OK, _) if etag.is_some() || may_be_old => {
                self.metrics.documents_read.inc();
                let document = match collect(response, MAX_DOCUMENT, &self.config.ledger).await {
                    Ok(Buffered::Whole(whole)) => Arc::new(Document::new(etag, whole)),
                    Ok(Buffered::TooLarge(response)) => {
                        // The next one may need its memory.
                        self.documents.invalidate(&key).await;
                        return Ok(response);
                    }
                    Err(error) => return Err(self.broken(&error)),
                };
                self.documents.insert(key, Arc::clone(&document)).await;
                document.answer(asked.as_ref(), &document.whole.headers)
            }
            _ => return Ok(response),
        };
        if let Some(held) = held {
            answer.extensions_mut().insert(held);
        }
        Ok(answer)
    }

    /// # Errors
    /// Nothing is where the apiserver should be, so nothing is sent there.
    pub(super) fn reaches(&self) -> Result<(), ForwardError> {
        if self.upstream.away().is_some() { Err(self.failed(&self.silence())) } else { Ok(()) }
    }

    fn silence(&self) -> UpstreamError {
        let error = self.upstream.health().error.unwrap_or_else(|| "it does not answer".into());
        UpstreamError::Connect { authority: self.upstream.authority(), cause: Cause::new(error.to_string()) }
    }

    fn failed(&self, error: &UpstreamError) -> ForwardError {
        let authority = self.upstream.authority().to_string();
        match error {
            UpstreamError::Timeout { .. } => ForwardError::Timeout { authority },
            UpstreamError::Busy => ForwardError::Busy { authority },
            UpstreamError::Connect { cause, .. } | UpstreamError::Tls { cause, .. } => {
                ForwardError::Unreachable { authority, error: cause.to_string() }
            }
            UpstreamError::Config(_) | UpstreamError::Auth(_) => {
                ForwardError::Unreachable { authority, error: error.to_string() }
            }
            error => ForwardError::Broken { authority, error: error.to_string() },
        }
    }

    pub(super) fn broken(&self, error: &BoxError) -> ForwardError {
        ForwardError::Broken { authority: self.upstream.authority().to_string(), error: error.to_string() }
    }
}

// === impl ForwardConfig ===

impl Default for ForwardConfig {
    fn default() -> Self {
        Self {
            lend: LendIdentity::default(),
            read_timeout: Duration::from_secs(70),
            share_limit: 32 << 20,
            ledger: Ledger::default(),
            window: None,
            documents: 64 << 20,
            old_documents: false,
        }
    }
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "apart_tests.rs"]
mod apart_tests;

#[cfg(test)]
#[path = "cut_tests.rs"]
mod cut_tests;

#[cfg(test)]
#[path = "redirect_tests.rs"]
mod redirect_tests;
