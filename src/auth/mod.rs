//! Authentication and authorization. No client can read through informerd what the kube-apiserver would refuse; while that is
//! away, no client can read what it had not allowed within the time of `authorization.whileAway` before.
//!
//! A listener that trusts its clients checks nothing. A delegated listener decides every read as the apiserver would:
//! bearer tokens by TokenReview, client certificates by the cluster's CA, rights by SubjectAccessReview.
//! [`Access::check`] is the single entry point, for every protocol. A request that cannot be decided is refused, or
//! forwarded with the client's own credentials. It is never allowed.
//!
//! While the apiserver is away, nobody can be asked. What it has accepted and allowed last then counts for a bounded time, see
//! [`outage`].

mod access;
mod attributes;
pub mod audit;
mod authenticator;
mod authorizer;
mod bearer;
mod caller;
mod certificate;
mod claims;
mod client_ca;
mod config;
mod cover;
mod credentials;
mod delegated;
mod ends_at;
mod families;
mod followed;
mod impersonation;
mod lease;
mod metrics;
mod ourselves;
mod outage;
mod pod_watches;
mod pods;
mod rbac_generations;
mod review;
mod revocation;
mod settling;
mod shares;
mod standing;
mod strangers;
mod term;
#[cfg(test)]
pub(crate) mod testing;
mod user;
mod verdict;

pub use access::Access;
pub use attributes::{Attributes, Selectors};
pub use authenticator::Recalled;
pub use bearer::{connection_tokens, has_protocol_token, shows_token, token as bearer_token, wants_upgrade};
pub use caller::{Caller, Mode};
pub use certificate::{user as certificate_user, validity as certificate_validity};
pub use client_ca::ClientCa;
pub use config::{Anonymous, AuthConfig, ClientCaSource};
pub use credentials::{credentials, size as credentials_size};
pub use impersonation::impersonates;
pub use lease::Lease;
pub use metrics::AuthMetrics;
pub use shares::{Client, Payer};
pub use strangers::StrangersRead;
pub use term::Term;
pub use user::UserInfo;
pub use verdict::{Grant, Subject, Verdict};
