//! Obtains a serving certificate through the cluster's CertificateSigningRequests. Its key never leaves the process.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;
use tokio::time::Instant;

use super::members::Members;
use super::objects::segment;
use super::request::Head;
use super::signer::{KIND, REQUESTS};
use super::{AuthorityError, Give, objects};
use informerd_apiserver::client::Upstream;
use informerd_lifecycle::backoff::Backoff;
use informerd_lifecycle::readiness::Latch;

/// How long a signer may take before the request is made again.
const PATIENCE: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(500);
const POLL_MOST: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(5);
const RETRY_MOST: Duration = Duration::from_secs(600);
/// How often the clock is checked.
const LOOK: Duration = Duration::from_secs(60);
/// The shortest lifetime that the apiserver accepts, in seconds.
const SHORTEST: u64 = 600;

/// The signer to use, and the certificate to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestConfig {
    /// `spec.signerName`.
    pub signer: String,
    /// DNS names and addresses.
    pub names: Vec<String>,
    /// The requested lifetime. The signer may grant less.
    pub lasts: Duration,
}

pub struct Requester {
    config: RequestConfig,
    upstream: Upstream,
    give: Give,
}

// === impl Requester ===

impl Requester {
    pub fn new(config: RequestConfig, upstream: Upstream, give: Give) -> Self {
        Self { config, upstream, give }
    }

    /// Runs forever. The latch is released with the first certificate. Each certificate is replaced after two thirds of
    /// its lifetime.
    pub async fn run(self, latch: Latch) {
        let mut latch = Some(latch);
        let mut retry = Backoff::between(RETRY, RETRY_MOST);
        loop {
            match self.obtain().await {
                Ok(until) => {
                    if let Some(latch) = latch.take() {
                        latch.release();
                    }
                    retry.reset();
                    tracing::info!(signer = self.config.signer, %until, "serving certificate received");
                    use_up(until).await;
                }
                Err(error) => {
                    tracing::warn!(signer = self.config.signer, %error, "no serving certificate, asking again");
                    tokio::time::sleep(retry.next(None)).await;
                }
            }
        }
    }

    /// Generates a key, requests its certificate and puts both into use. Returns the time until which the certificate
    /// is valid.
    async fn obtain(&self) -> Result<Timestamp, AuthorityError> {
        let key = KeyPair::generate()?;
        let request = self.create(&request(&self.config.names, &key)?).await?;
        let name = request.metadata.name;
        let chain = self.answer(&name).await?;
        (self.give)(&chain, &key.serialize_pem()).map_err(|message| content(&name, message))
    }

    async fn create(&self, pem: &str) -> Result<Head, AuthorityError> {
        let lasts = self.config.lasts.as_secs().clamp(SHORTEST, i32::MAX.unsigned_abs().into());
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "informerd-"},
            "spec": {
                "signerName": self.config.signer,
                "request": STANDARD.encode(pem),
                "usages": ["digital signature", "server auth"],
                "expirationSeconds": lasts,
            },
        });
        let request = serde_json::from_value::<Members>(request);
        let request = request.map_err(|error| content("to create", error.to_string()))?;
        objects::at(&self.upstream, Method::POST, KIND, REQUESTS, Some(&request)).await
    }

    /// Waits until the request is signed, and returns the chain in PEM.
    async fn answer(&self, name: &str) -> Result<String, AuthorityError> {
        let (until, mut poll) = (Instant::now() + PATIENCE, Backoff::between(POLL, POLL_MOST));
        while Instant::now() < until {
            tokio::time::sleep(poll.next(None)).await;
            let path = format!("{REQUESTS}/{}", segment(name));
            let request: Head = objects::at(&self.upstream, Method::GET, KIND, &path, None).await?;
            for kind in ["Denied", "Failed"] {
                if let Some(message) = request.message(kind) {
                    return Err(content(name, format!("{kind}: {message}")));
                }
            }
            if let Some(text) = request.certificate() {
                let chain = STANDARD.decode(text).map_err(|error| content(name, error.to_string()))?;
                return String::from_utf8(chain).map_err(|error| content(name, error.to_string()));
            }
        }
        Err(content(name, "it was not signed in time".to_owned()))
    }
}

/// Waits until the next certificate is due. It uses the wall clock, because certificates do. That clock can be set, and
/// the machine may sleep.
async fn use_up(until: Timestamp) {
    let received = Timestamp::now();
    let due = received + used(received, until).mul_f64(rand::random_range(0.9..1.0)).max(RETRY);
    loop {
        let now = Timestamp::now();
        if !(received..due).contains(&now) {
            return;
        }
        tokio::time::sleep(due.duration_since(now).unsigned_abs().min(LOOK)).await;
    }
}

/// How long a certificate is used: two thirds of its lifetime.
fn used(received: Timestamp, until: Timestamp) -> Duration {
    match Duration::try_from(until.duration_since(received)) {
        Ok(lasts) if !lasts.is_zero() => lasts * 2 / 3,
        // The signer's clock or ours is wrong. The next certificate is no better until that clock is set.
        _ => {
            tracing::warn!(%until, "the certificate has expired already: the signer's clock or ours is wrong");
            RETRY_MOST
        }
    }
}

/// A certificate request for these names, in PEM.
pub(super) fn request(names: &[String], key: &KeyPair) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "informerd");
    params.serialize_request(key)?.pem()
}

fn content(name: &str, message: String) -> AuthorityError {
    AuthorityError::Content { what: format!("CertificateSigningRequest {name}"), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_thirds_of_a_certificate_are_used() {
        let now: Timestamp = "2026-01-31T00:00:00Z".parse().unwrap();
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(used(now, now + 30 * day), 20 * day);
        // A signer whose clock is behind issues certificates that have already expired. Such a certificate must not
        // stay in use for months.
        assert_eq!((used(now, now - 30 * day), used(now, now)), (RETRY_MOST, RETRY_MOST));
    }
}
