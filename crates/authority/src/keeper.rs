//! Maintains the shared CA, its published certificates, and the serving certificate of this process if it has one.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tokio::sync::watch;

use super::bundle::Bundle;
use super::ca::Ca;
use super::members::Members;
use super::objects::Place;
use super::published::Published;
use super::signer::{Signer, SignerMetrics};
use super::{AuthorityConfig, AuthorityError, Give, ObjectName};
use informerd_apiserver::client::{ConfigSource, Upstream};
use informerd_lifecycle::backoff::{Backoff, jittered};
use informerd_lifecycle::readiness::Latch;

pub struct Keeper {
    config: AuthorityConfig,
    upstream: Upstream,
    /// Provides the cluster's own CA, which is published together with ours.
    source: ConfigSource,
    serving: Option<Serving>,
    issued: Option<Issued>,
    /// The CA that signs now. It was published before.
    current: watch::Sender<Option<Ca>>,
}

/// The serving certificate of this process.
pub struct Serving {
    pub names: Vec<String>,
    pub give: Give,
}

/// The serving certificate in use.
struct Issued {
    at: Timestamp,
    by: Timestamp,
}

/// The key in the Secret.
const BUNDLE: &str = "authority.json";
/// The most attempts after write conflicts. Replicas that start together resolve their conflicts within a few attempts.
const CONFLICTS: usize = 20;
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MOST: Duration = Duration::from_secs(120);
/// A missing place may be created soon, when a client is set up. It may also never be created, and every replica
/// checks for it.
const MISSING: Duration = Duration::from_secs(1);
const MISSING_MOST: Duration = Duration::from_secs(240);

// === impl Keeper ===

impl Keeper {
    pub fn new(config: AuthorityConfig, upstream: Upstream, source: ConfigSource, serving: Option<Serving>) -> Self {
        Self { config, upstream, source, serving, issued: None, current: watch::Sender::new(None) }
    }

    /// The signer that signs certificates for others with this CA, if the configuration has one.
    pub fn signer(&self, metrics: Arc<SignerMetrics>) -> Option<Signer> {
        let config = self.config.signer.clone()?;
        let longest = self.config.lifetimes.leaf;
        Some(Signer::new(config, longest, self.upstream.clone(), self.current.subscribe(), metrics))
    }

    /// Runs forever. The latch is released once there are a CA and its first certificate.
    pub async fn run(mut self, latch: Latch) {
        let mut latch = Some(latch);
        let mut retry = Backoff::between(RETRY, RETRY_MOST);
        let mut missing = Backoff::between(MISSING, MISSING_MOST);
        loop {
            let mut result = self.pass().await;
            for _ in 0..CONFLICTS {
                if !matches!(result, Err(AuthorityError::Conflict { .. })) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(rand::random_range(10..200))).await;
                result = self.pass().await;
            }
            if self.current.borrow().is_some()
                && let Some(latch) = latch.take()
            {
                latch.release();
            }
            let wait = match result {
                Ok(true) => {
                    retry.reset();
                    missing.reset();
                    // A place may be deleted and created again, empty.
                    jittered(self.config.lifetimes.interval().min(MISSING_MOST))
                }
                Ok(false) => {
                    retry.reset();
                    missing.next(None).min(self.config.lifetimes.interval())
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot maintain the shared CA, trying again");
                    retry.next(None).min(self.config.lifetimes.interval())
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Returns whether the trusted certificates are published in all places.
    async fn pass(&mut self) -> Result<bool, AuthorityError> {
        let at = Place::secret(&self.config.secret);
        let mut secret = at.get(&self.upstream).await?;
        let held = self.held(&secret)?;
        let mut published = Published::read(&self.config, &self.upstream).await;
        let lifetimes = self.config.lifetimes;
        let everywhere = |certificate: &str| published.has(certificate);
        let now = Timestamp::now();
        let bundle = match Bundle::step(held.as_ref(), everywhere, now, &lifetimes)? {
            Some(next) => {
                let text = serde_json::to_vec(&next).map_err(|error| content(&self.config.secret, &error))?;
                let mut data: Members = secret.get("data");
                let set = data.set(BUNDLE, &STANDARD.encode(text)).and_then(|()| secret.set("data", &data));
                set.map_err(|error| content(&self.config.secret, &error))?;
                at.put(&self.upstream, &secret).await?;
                let of = held.as_ref().map(|held| held.current.made);
                tracing::info!(secret = %self.config.secret, current = %next.current.made, before = ?of, next = ?next.next.as_ref().map(|next| next.made), "the shared CA has changed");
                next
            }
            // If nothing had to change, there is a bundle.
            None => held.ok_or_else(|| content(&self.config.secret, &"is empty"))?,
        };
        // Publish the trusted certificates first, then issue certificates.
        published.write(&self.upstream, &self.cluster_ca().await?, &bundle.trusted()).await?;
        self.sign_own(&bundle, now)?;
        let signs = Some(bundle.current);
        if *self.current.borrow() != signs {
            self.current.send_replace(signs);
        }
        published.end()
    }

    fn sign_own(&mut self, bundle: &Bundle, now: Timestamp) -> Result<(), AuthorityError> {
        let Some(Serving { names, give }) = &self.serving else { return Ok(()) };
        let lifetimes = &self.config.lifetimes;
        let old = |issued: &Issued| now.duration_since(issued.at).unsigned_abs() >= lifetimes.leaf * 2 / 3;
        if self.issued.as_ref().is_some_and(|issued| issued.by == bundle.current.made && !old(issued)) {
            return Ok(());
        }
        let leaf = bundle.current.issue(names, now, lifetimes.leaf)?;
        give(&leaf.chain, &leaf.key).map_err(|error| content(&self.config.secret, &error))?;
        self.issued = Some(Issued { at: now, by: bundle.current.made });
        tracing::info!(ca = %bundle.current.made, "serving certificate issued");
        Ok(())
    }

    /// The content of the Secret. Invalid content is not overwritten: a person has to look at it.
    fn held(&self, secret: &Members) -> Result<Option<Bundle>, AuthorityError> {
        let Some(text) = secret.get::<Members>("data").get::<Option<String>>(BUNDLE) else { return Ok(None) };
        let text = STANDARD.decode(text).map_err(|error| content(&self.config.secret, &error))?;
        Bundle::parse(&text).map(Some).map_err(|error| content(&self.config.secret, &error))
    }

    /// The cluster's CA in PEM; empty without TLS. It is read again each time, because it is rotated too.
    async fn cluster_ca(&self) -> Result<String, AuthorityError> {
        let config = self.source.read().await?;
        Ok(config.root_cert.unwrap_or_default().iter().map(|der| pem(der)).collect())
    }
}

fn content(name: &ObjectName, message: &dyn std::fmt::Display) -> AuthorityError {
    AuthorityError::Content { what: format!("Secret {name}"), message: message.to_string() }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}
