//! What follows the kube-apiserver's objects: the reflector that feeds a cache, and the probes that prove how fresh a cache is.

pub mod backfill;
pub mod identity;
mod proofs;
pub mod reflector;
#[cfg(test)]
pub(crate) mod script;
mod sharding;
pub mod silence;
mod source;

pub use proofs::{
    Asked, Finding, Pace, Part, Progress, ProgressProbe, ProveError, Questions, SMALL_DIGEST, SharedStore, Suspects,
    Word,
};
pub use sharding::{ShardSupport, Sharding};
pub use source::ListerWatcher;
