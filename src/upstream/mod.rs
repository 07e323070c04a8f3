//! The only module that talks to the kube-apiserver on the daemon's own behalf: its client, discovery, the reflector
//! that feeds a cache, and the probe that proves how fresh a cache is.

pub mod backfill;
pub mod client;
pub mod discovery;
mod error;
mod families;
pub mod identity;
pub mod kubeconfig;
mod lenient;
pub mod metadata;
pub mod metrics;
mod proofs;
#[cfg(test)]
pub(crate) mod raw_testing;
pub mod reader;
pub mod reflector;
mod retries;
#[cfg(test)]
pub(crate) mod script;
mod sharding;
pub mod silence;
mod source;
mod stamp;
#[cfg(test)]
pub(crate) mod testing;

pub use backfill::Backfiller;
pub use client::{CallOptions, Identity, Upstream};
pub use discovery::Discovery;
pub use error::UpstreamError;
pub use metrics::{RequestVerb, UpstreamMetrics};
pub use proofs::{
    Asked, Finding, Pace, Part, Progress, ProgressProbe, ProveError, Questions, SMALL_DIGEST, SharedStore, Suspects,
    Word,
};
pub use reflector::{Reflector, ReflectorConfig, ReflectorEnd};
pub use sharding::{ShardSupport, Sharding};
pub use source::ListerWatcher;
