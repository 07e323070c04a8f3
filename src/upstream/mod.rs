//! The only module that talks to the kube-apiserver on the daemon's own behalf: its client, discovery, the reflector
//! that feeds a cache, and the probe that proves how fresh a cache is.

mod audit;
pub mod backfill;
pub mod client;
mod comparison;
mod digest;
pub mod discovery;
mod error;
mod families;
pub mod identity;
pub mod kubeconfig;
mod lenient;
pub mod metadata;
pub mod metrics;
mod odds;
pub mod progress;
mod questions;
#[cfg(test)]
pub(crate) mod raw_testing;
pub mod reader;
pub mod reflector;
mod retries;
#[cfg(test)]
pub(crate) mod script;
mod sharding;
mod shared_store;
pub mod silence;
mod single_flight;
mod source;
mod stamp;
#[cfg(test)]
pub(crate) mod testing;

pub use audit::{Finding, Suspects};
pub use backfill::Backfiller;
pub use client::{CallOptions, Identity, Upstream};
pub use comparison::{Part, SMALL_DIGEST};
pub use discovery::Discovery;
pub use error::UpstreamError;
pub use metrics::{RequestVerb, UpstreamMetrics};
pub use progress::{Progress, ProgressProbe, ProveError};
pub use questions::Questions;
pub use reflector::{Reflector, ReflectorConfig, ReflectorEnd};
pub use sharding::{ShardSupport, Sharding};
pub use shared_store::{SharedStore, Word};
pub use single_flight::{Asked, Pace};
pub use source::ListerWatcher;
