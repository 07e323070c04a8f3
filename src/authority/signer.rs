//! Signs the requests of node agents with the shared CA.
//!
//! The replicas do not coordinate. Each writes its decision with the revision that it has read. So if two decide the
//! same request, the apiserver refuses one of the writes, and that replica drops its decision.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequestSpec as Spec;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::ca::Ca;
use super::decision::{Accepted, Addresses, Denial, Node, decide};
use super::objects::Pages;
use super::{AuthorityError, ObjectName, objects};
use crate::lifecycle::backoff::Backoff;
use crate::upstream::client::Upstream;

pub(super) const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
pub(super) const KIND: &str = "certificatesigningrequests.certificates.k8s.io";
const NODES: &str = "/api/v1/nodes";
/// Requests that arrive together, as in a rollout, are decided together. The nodes are listed once for all of them.
const GATHER: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(60);

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
pub(crate) struct SignerMetrics {
    pub signed: Counter,
    pub denied: Counter,
}

pub(crate) struct Signer {
    config: SignerConfig,
    /// The longest lifetime of a certificate.
    longest: Duration,
    upstream: Upstream,
    /// `None` until there is a CA.
    ca: watch::Receiver<Option<Ca>>,
    metrics: Arc<SignerMetrics>,
}

// === impl SignerMetrics ===

impl SignerMetrics {
    /// Registers the metrics of certificate requests.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("informerd");
        for (name, help, counter) in [
            ("certificates_signed", "Certificate requests of node agents signed", &self.signed),
            ("certificates_denied", "Certificate requests denied", &self.denied),
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
        Self { config, longest, upstream, ca, metrics }
    }

    /// Runs forever.
    pub(crate) async fn run(mut self) {
        let mut retry = Backoff::between(RETRY, RETRY_MOST);
        loop {
            if self.ca.wait_for(Option::is_some).await.is_err() {
                return;
            }
            let pause = retry.next(None);
            match self.round(pause).await {
                Ok(None) => {
                    retry.reset();
                    tokio::time::sleep(GATHER).await;
                }
                Ok(Some(error)) => {
                    tracing::warn!(%error, "cannot decide a certificate request, trying again");
                    tokio::time::sleep(GATHER).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot process certificate requests, trying again");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Decides all pending requests, then waits for more. If a request could not be decided, it waits for at most
    /// `pause` and returns the error.
    async fn round(&self, pause: Duration) -> Result<Option<AuthorityError>, AuthorityError> {
        let selector = format!("spec.signerName%3D{}", self.config.name);
        let mut pages = Pages::of(&self.upstream, KIND, REQUESTS, &selector);
        let (mut nodes, mut revision, mut failed) = (None, None, None);
        while let Some(page) = pages.next::<Value>().await? {
            revision = revision.or(Some(page.metadata.resource_version));
            for request in page.items.into_iter().filter(waits) {
                let nodes = match &mut nodes {
                    Some(nodes) => nodes,
                    None => nodes.insert(self.nodes().await?),
                };
                match self.settle(request, nodes).await {
                    // The other replica was first, or the request was deleted.
                    Err(AuthorityError::Conflict { .. } | AuthorityError::Refused { status: 404, .. }) | Ok(()) => {}
                    Err(error @ AuthorityError::Upstream(_)) => return Err(error),
                    // One request that always fails must not keep the others from their certificates.
                    Err(error) => failed = Some(error),
                }
            }
        }
        let revision = revision.unwrap_or_default();
        let changed = objects::changed(&self.upstream, KIND, REQUESTS, &selector, &revision);
        let Some(failed) = failed else { return changed.await.map(|()| None) };
        match tokio::time::timeout(pause, changed).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Ok(Some(failed)),
        }
    }

    /// Lists all nodes, because an address belongs to a node only if no other node claims it.
    async fn nodes(&self) -> Result<Addresses, AuthorityError> {
        let mut addresses = Addresses::default();
        let mut pages = Pages::of(&self.upstream, "nodes", NODES, "");
        while let Some(page) = pages.next::<Node>().await? {
            page.items.into_iter().for_each(|node| addresses.add(node));
        }
        Ok(addresses)
    }

    async fn settle(&self, mut request: Value, nodes: &Addresses) -> Result<(), AuthorityError> {
        let name = request["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let approved = has(&request, "Approved");
        let decision = Spec::deserialize(&request["spec"])
            .map_err(|error| Denial(format!("the request cannot be read: {error}")))
            .and_then(|spec| decide(&spec, &self.config.account, nodes, self.longest));
        match decision {
            Ok(accepted) => {
                if !approved {
                    let message = format!("a server at addresses of node {}", accepted.node);
                    condition(&mut request, "Approved", "OwnNode", &message);
                    request = self.put(&name, "approval", &request).await?;
                }
                request["status"]["certificate"] = json!(STANDARD.encode(self.certify(&accepted)?));
                self.put(&name, "status", &request).await?;
                self.metrics.signed.inc();
                tracing::info!(request = name, node = accepted.node, "certificate signed");
            }
            Err(Denial(message)) => {
                // A request that was approved elsewhere can no longer be denied.
                let (kind, part) = if approved { ("Failed", "status") } else { ("Denied", "approval") };
                condition(&mut request, kind, "NotAllowed", &message);
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

    async fn put(&self, name: &str, part: &str, request: &Value) -> Result<Value, AuthorityError> {
        objects::at(&self.upstream, Method::PUT, KIND, &format!("{REQUESTS}/{name}/{part}"), Some(request)).await
    }
}

fn waits(request: &Value) -> bool {
    request["status"]["certificate"].as_str().is_none_or(str::is_empty)
        && !has(request, "Denied")
        && !has(request, "Failed")
}

/// Whether a request has a condition.
pub(super) fn has(request: &Value, kind: &str) -> bool {
    of(request, kind).is_some()
}

/// The message of a condition.
pub(super) fn of<'a>(request: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = request["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some(found["message"].as_str().unwrap_or_default())
}

fn condition(request: &mut Value, kind: &str, reason: &str, message: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    match request["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => request["status"]["conditions"] = json!([condition]),
    }
}
