//! A CA that the replicas of a deployment share through a Secret: whoever comes first makes it, all sign their own
//! serving certificates with it, and all publish what clients are to trust in ConfigMaps.
//!
//! Nobody leads. A change of the Secret names the revision it was made from, so of two that are made at once one is
//! refused and begins anew from what the other has written. Private keys of serving certificates never leave the process.
//!
//! Agents of nodes do not share a CA: each requests a certificate for its node's addresses, and the replicas of another
//! deployment sign it, which alone have the CA.

mod bundle;
mod ca;
mod decision;
mod keeper;
mod objects;
mod requester;
mod signer;

#[cfg(test)]
mod decision_tests;
#[cfg(test)]
mod tests;

pub(crate) use ca::{BACKDATED, Ca, NoCa};
pub(crate) use keeper::{Keeper, Serving};
pub(crate) use requester::{RequestConfig, Requester};
pub(crate) use signer::{SignerConfig, SignerMetrics};

use std::time::Duration;

use jiff::Timestamp;

/// Puts a certificate chain and its key, both PEM, into use. Returns until when the certificate is valid.
pub(crate) type Give = Box<dyn Fn(&str, &str) -> Result<Timestamp, String> + Send + Sync>;

/// Where the CA is kept and published, and how long things last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityConfig {
    /// Must exist.
    pub secret: ObjectName,
    /// Must exist. What they say under `ca.crt` is replaced.
    pub config_maps: Vec<ObjectName>,
    pub lifetimes: Lifetimes,
    /// Makes this a signer of certificate requests. `None`: no requests are signed.
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
    /// How long the next one is published before it signs.
    pub overlap: Duration,
    /// How long a serving certificate is valid. It is replaced after two thirds of that time.
    pub leaf: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error("{0}")]
    Upstream(#[from] crate::upstream::UpstreamError),
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
    /// How often what is shared is looked at.
    fn interval(&self) -> Duration {
        (self.overlap.min(self.leaf) / 24).clamp(Duration::from_millis(500), Duration::from_secs(3600))
    }

    /// How long clients must trust a CA that no longer signs: until the last certificate of it has expired, of a replica
    /// that did not hear at once.
    fn trusted_after(&self) -> Duration {
        self.leaf + self.overlap
    }

    /// How long a CA is valid: it may sign, and be trusted, a little longer than it is meant to.
    fn ca_validity(&self) -> Duration {
        self.ca + 2 * self.overlap + self.trusted_after()
    }
}
