//! Signs the requests of node agents with the shared CA.
//!
//! The replicas do not coordinate. Each writes its decision with the revision that it has read. So if two decide the
//! same request, the apiserver refuses one of the writes, and that replica drops its decision.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::ca::Ca;
use super::decision::{Accepted, Addresses, Denial, Node, decide};
use super::members::Members;
use super::objects::{PAGE, Pages, only, segment};
use super::request::{Head, Meta, Request};
use super::{AuthorityError, ObjectName, objects};
use informerd_apiserver::client::Upstream;
use informerd_lifecycle::backoff::Backoff;

pub(super) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub(super) const KIND: &str = "certificatesigningrequests.certificates.k8s.io";
const NODES: &str = "/api/v1/nodes";
/// Requests that arrive together, as in a rollout, are decided together. The nodes are listed once for all of them.
const GATHER: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(60);
/// An agent's request is smaller. Larger ones are read again, one by one, after all others were decided.
const SMALL: usize = 32 << 10;
/// The most requests that a round decides after all others: large ones, and those that failed before.
const MOST_LATER: usize = 16;
/// A request that cannot be decided is dropped after this time. Its agent makes a new one.
const GIVEN_UP: Duration = Duration::from_secs(300);
/// The most requests of which it is remembered that they could not be decided. Beyond that, all are tried again.
const MOST_FAILED: usize = 16_384;
/// After this many failed exchanges in one round, it is the apiserver that fails.
const MOST_BROKEN: usize = 3;

/// Which requests the signer signs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignerConfig {
    /// `spec.signerName` of the requests.
    pub name: String,
    /// The ServiceAccount of the agents.
    pub account: ObjectName,
}

/// Counts how requests were decided, since the start.
#[derive(Debug, Default)]
pub struct SignerMetrics {
    pub signed: Counter,
    pub denied: Counter,
    pub dropped: Counter,
}

pub struct Signer {
    config: SignerConfig,
    /// The longest lifetime of a certificate.
    longest: Duration,
    upstream: Upstream,
    /// `None` until there is a CA.
    ca: watch::Receiver<Option<Ca>>,
    metrics: Arc<SignerMetrics>,
    /// Requests that could not be decided, by uid.
    failed: HashMap<String, Failed>,
}

/// A request that could not be decided.
struct Failed {
    since: Instant,
    backoff: Backoff,
    /// When to try again. `None`: never.
    again: Option<Instant>,
    /// Whether the present list has it.
    is_listed: bool,
}

/// What a round has found.
#[derive(Default)]
struct Found {
    /// Requests to decide at once.
    small: Vec<Vec<u8>>,
    /// Requests to decide after all others.
    later: Vec<Meta>,
    /// When the round must be repeated, whatever changes.
    again: Option<Instant>,
}

/// What the requests of a round are decided with.
#[derive(Default)]
struct Round {
    /// Read when it is needed.
    nodes: Option<Addresses>,
    broken: usize,
}

// === impl SignerMetrics ===

impl SignerMetrics {
    /// Registers the metrics of certificate requests.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, counter) in [
            ("certificates_signed", "Certificate requests of node agents signed", &self.signed),
            ("certificates_denied", "Certificate requests denied", &self.denied),
            (
                "certificates_dropped",
                "Certificate requests that could not be decided within five minutes",
                &self.dropped,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

// === impl Signer ===

impl Signer {
    pub(super) fn new(
        config: SignerConfig,
        longest: Duration,
        upstream: Upstream,
        ca: watch::Receiver<Option<Ca>>,
        metrics: Arc<SignerMetrics>,
    ) -> Self {
        Self { config, longest, upstream, ca, metrics, failed: HashMap::new() }
    }

    /// Runs forever.
    pub async fn run(mut self) {
        let mut retry = Backoff::between(RETRY, RETRY_MOST);
        loop {
            if self.ca.wait_for(Option::is_some).await.is_err() {
                return;
            }
            match self.round().await {
                Ok(()) => {
                    retry.reset();
                    sleep(GATHER).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot process certificate requests, trying again");
                    sleep(retry.next(None)).await;
                }
            }
        }
    }

    /// Decides all pending requests, then waits for more, or until one that failed is due again.
    async fn round(&mut self) -> Result<(), AuthorityError> {
        let upstream = self.upstream.clone();
        let selector = format!("spec.signerName%3D{}", segment(&self.config.name));
        let mut pages = Pages::of(&upstream, KIND, REQUESTS, &selector);
        let (mut found, mut round, mut revision) = (Found::default(), Round::default(), None);
        self.failed.values_mut().for_each(|failed| failed.is_listed = false);
        while let Some(page) = pages.next(|text| found.take(text, &mut self.failed)).await? {
            revision = revision.or(Some(page));
            for text in std::mem::take(&mut found.small) {
                self.process(&text, &mut round).await?;
            }
        }
        self.failed.retain(|_, failed| failed.is_listed);
        for Meta { name, uid } in std::mem::take(&mut found.later) {
            let selector = only(&name, &selector);
            let mut text = None;
            let read = Pages::of(&upstream, KIND, REQUESTS, &selector).next(|item| text = Some(item.to_vec())).await;
            match (read, text) {
                (Ok(_), Some(text)) => self.process(&text, &mut round).await?,
                (Ok(_), None) => {}
                (Err(error), _) => self.fail(uid, &name, error, &mut round)?,
            }
        }
        let again = self.failed.values().filter_map(|failed| failed.again).chain(found.again).min();
        let revision = revision.unwrap_or_default();
        let changed = objects::changed(&upstream, KIND, REQUESTS, &selector, &revision);
        match again {
            None => changed.await,
            Some(again) => timeout_at(again, changed).await.unwrap_or(Ok(())),
        }
    }

    /// Lists all nodes, because an address belongs to a node only if no other node claims it.
    async fn nodes(&self) -> Result<Addresses, AuthorityError> {
        let (mut addresses, mut error) = (Addresses::default(), None);
        let mut pages = Pages::of(&self.upstream, "nodes", NODES, "");
        let mut take = |text: &[u8]| match serde_json::from_slice::<Node>(text) {
            Ok(node) => addresses.add(node),
            Err(cause) => error = Some(cause),
        };
        while pages.next(&mut take).await?.is_some() {}
        match error {
            None => Ok(addresses),
            // An address that such a node claims would seem to be another one's alone.
            Some(error) => Err(AuthorityError::Content { what: "a Node".to_owned(), message: error.to_string() }),
        }
    }

    /// Decides a request. If it cannot be decided, that is remembered: it must not keep the others from their certificates.
    ///
    /// # Errors
    /// The apiserver does not answer, or not about the nodes.
    async fn process(&mut self, text: &[u8], round: &mut Round) -> Result<(), AuthorityError> {
        let request = match serde_json::from_slice::<Members>(text) {
            Ok(object) => Request::new(object)?,
            Err(error) => {
                tracing::warn!(%error, "a certificate request cannot be read");
                return Ok(());
            }
        };
        if !request.head.waits() {
            return Ok(());
        }
        let nodes = match &mut round.nodes {
            Some(nodes) => nodes,
            None => round.nodes.insert(self.nodes().await?),
        };
        let (uid, name) = (request.head.metadata.uid.clone(), request.head.metadata.name.clone());
        match self.settle(request, nodes).await {
            Ok(()) => drop(self.failed.remove(&uid)),
            // The other replica was first, or the request was deleted.
            Err(AuthorityError::Conflict { .. } | AuthorityError::Refused { status: 404, .. }) => {}
            Err(error) => self.fail(uid, &name, error, round)?,
        }
        Ok(())
    }

    /// # Errors
    /// It is the apiserver that fails, and not this request.
    fn fail(
        &mut self,
        uid: String,
        name: &str,
        error: AuthorityError,
        round: &mut Round,
    ) -> Result<(), AuthorityError> {
        round.broken += usize::from(matches!(error, AuthorityError::Upstream(_)));
        if round.broken >= MOST_BROKEN {
            return Err(error);
        }
        if self.failed.len() >= MOST_FAILED {
            self.failed.clear();
        }
        let now = Instant::now();
        let failed = self.failed.entry(uid).or_insert_with(|| Failed::new(now));
        failed.again = (now < failed.since + GIVEN_UP).then(|| now + failed.backoff.next(None));
        if failed.again.is_some() {
            tracing::warn!(request = name, %error, "cannot decide a certificate request, trying again");
        } else {
            self.metrics.dropped.inc();
            tracing::warn!(request = name, %error, "cannot decide a certificate request, dropping it");
        }
        Ok(())
    }

    async fn settle(&self, mut request: Request, nodes: &Addresses) -> Result<(), AuthorityError> {
        let name = request.head.metadata.name.clone();
        let approved = request.head.has("Approved");
        let decision = request
            .spec()
            .map_err(|error| Denial(format!("the request cannot be read: {error}")))
            .and_then(|spec| decide(&spec, &self.config.account, nodes, self.longest));
        match decision {
            Ok(accepted) => {
                if !approved {
                    let message = format!("a server at addresses of node {}", accepted.node);
                    request.add_condition("Approved", "OwnNode", &message)?;
                    request = self.put(&name, "approval", &request).await?;
                }
                request.set_certificate(&self.certify(&accepted)?)?;
                self.put(&name, "status", &request).await?;
                self.metrics.signed.inc();
                tracing::info!(request = name, node = accepted.node, "certificate signed");
            }
            Err(Denial(message)) => {
                // A request that was approved elsewhere can no longer be denied.
                let (kind, part) = if approved { ("Failed", "status") } else { ("Denied", "approval") };
                request.add_condition(kind, "NotAllowed", &message)?;
                self.put(&name, part, &request).await?;
                self.metrics.denied.inc();
                tracing::warn!(request = name, message, "certificate denied");
            }
        }
        Ok(())
    }

    fn certify(&self, accepted: &Accepted) -> Result<String, AuthorityError> {
        let missing = || AuthorityError::Content { what: "the shared CA".to_owned(), message: "is gone".to_owned() };
        let ca = self.ca.borrow().clone().ok_or_else(missing)?;
        Ok(ca.certify(&accepted.key, accepted.addresses.clone(), Timestamp::now(), accepted.lasts)?)
    }

    async fn put(&self, name: &str, part: &str, request: &Request) -> Result<Request, AuthorityError> {
        let path = format!("{REQUESTS}/{}/{part}", segment(name));
        let answer = objects::at(&self.upstream, Method::PUT, KIND, &path, Some(&request.object)).await?;
        Request::new(answer)
    }
}

// === impl Failed ===

impl Failed {
    fn new(since: Instant) -> Self {
        Self { since, backoff: Backoff::between(RETRY, RETRY_MOST), again: None, is_listed: true }
    }
}

// === impl Found ===

impl Found {
    /// Takes a request of the list.
    fn take(&mut self, text: &[u8], failed: &mut HashMap<String, Failed>) {
        let Ok(head) = serde_json::from_slice::<Head>(text) else { return };
        // A list may have come twice, see `Pages`.
        if !head.waits() || self.later.iter().any(|later| later.uid == head.metadata.uid) {
            return;
        }
        let before = failed.get_mut(&head.metadata.uid);
        let is_later = before.is_some() || text.len() > SMALL;
        if let Some(failed) = before {
            failed.is_listed = true;
            if failed.again.is_none_or(|again| again > Instant::now()) {
                return;
            }
        }
        if !is_later && self.small.len() < PAGE {
            self.small.push(text.to_vec());
        } else if is_later && self.later.len() < MOST_LATER {
            self.later.push(head.metadata);
        } else {
            self.again = Some(Instant::now());
        }
    }
}

#[cfg(test)]
#[path = "signer_tests.rs"]
mod tests;
