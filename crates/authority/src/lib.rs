//! A CA that the replicas of a deployment share through a Secret. The first replica creates it. All replicas sign their
//! own serving certificates with it, and all publish the certificates that clients must trust in ConfigMaps.
//!
//! There is no leader. A write to the Secret names the revision that it is based on. So of two concurrent writes one is
//! refused, and its replica starts again from what the other has written. Private keys of serving certificates never
//! leave the process.
//!
//! Node agents do not share a CA. Each requests a certificate for its node's addresses, and the replicas of another
//! deployment sign it. Only those have the CA.

mod bundle;
mod ca;
mod decision;
mod keeper;
mod lookups;
mod members;
mod objects;
mod published;
mod request;
mod requester;
mod signer;

#[cfg(test)]
mod decision_tests;
#[cfg(test)]
mod tests;

pub use ca::{BACKDATED, Ca, NoCa};
pub use keeper::{Keeper, Serving};
pub use lookups::{config_map_has_ca, deployment_image};
pub use requester::{RequestConfig, Requester};
pub use signer::{SignerConfig, SignerMetrics};

use std::time::Duration;

use jiff::Timestamp;

/// Puts a certificate chain and its key, both PEM, into use. Returns the time until which the certificate is valid.
pub type Give = Box<dyn Fn(&str, &str) -> Result<Timestamp, String> + Send + Sync>;

/// Where the CA is stored and published, and the lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityConfig {
    /// Must exist.
    pub secret: ObjectName,
    /// Must exist. Their value of `ca.crt` is replaced.
    pub config_maps: Vec<ObjectName>,
    /// A MutatingWebhookConfiguration, which must exist. Its `caBundle`s are replaced.
    pub webhook: Option<String>,
    pub lifetimes: Lifetimes,
    /// Makes this process a signer of certificate requests. `None`: no requests are signed.
    pub signer: Option<SignerConfig>,
}

/// An object's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// How long a CA signs before the next one is made.
    pub ca: Duration,
    /// How long the next one is published before it signs. Clients must read their bundle again within that time.
    pub overlap: Duration,
    /// How long a serving certificate is valid. It is replaced after two thirds of that time. There is no revocation.
    pub leaf: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("{0}")]
    Upstream(#[from] informerd_apiserver::UpstreamError),
    #[error("{what}: the apiserver answers {status}: {message}")]
    Refused { what: String, status: u16, message: String },
    #[error("{what} was changed by somebody else")]
    Conflict { what: String },
    #[error("{what}: the answer is too long")]
    TooLong { what: String },
    #[error("{what}: {message}")]
    Content { what: String, message: String },
    #[error("issuing a certificate: {0}")]
    Issue(#[from] rcgen::Error),
}

// === impl ObjectName ===

impl std::str::FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("{text:?} names no object: want NAMESPACE/NAME")),
        }
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

// === impl Lifetimes ===

impl Lifetimes {
    /// A certificate is valid for 30 days at most, which bounds the use of a stolen key, and clients have a day to read the bundle again.
    const LONGEST: Self = {
        let day = Duration::from_secs(24 * 3600);
        Self { ca: Duration::MAX, overlap: day, leaf: Duration::from_secs(30 * 24 * 3600) }
    };

    /// Returns the lifetimes of a CA that signs for `ca`: the others are [`Self::LONGEST`], or a sixth of it.
    pub fn of(ca: Duration) -> Self {
        let part = ca / 6;
        Self { ca, overlap: part.min(Self::LONGEST.overlap), leaf: part.min(Self::LONGEST.leaf) }
    }

    /// How often the shared objects are checked.
    fn interval(&self) -> Duration {
        (self.overlap.min(self.leaf) / 24).clamp(Duration::from_millis(500), Duration::from_secs(3600))
    }

    /// How long clients must trust a CA that no longer signs: until its last certificate has expired. That one may come
    /// from a replica that noticed the change late.
    fn trusted_after(&self) -> Duration {
        self.leaf + self.overlap
    }

    /// How long a CA is valid. It may sign, and be trusted, a little longer than planned.
    fn ca_validity(&self) -> Duration {
        self.ca + self.after_ca()
    }

    /// How long a CA is still valid when the next one is made.
    fn after_ca(&self) -> Duration {
        2 * self.overlap + self.trusted_after()
    }
}
