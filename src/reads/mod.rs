//! The read path, independent of the protocol: turns a request into a plan, and executes the plan.
//!
//! [`plan`] is the decision table, a pure function. [`Reads`] executes a plan with the informers: serve, wait and
//! serve, forward with a reason, or refuse with a Status. Both HTTP and gRPC use this module.

mod advice;
mod allowance;
mod answer;
mod config;
mod explain;
mod get;
mod list;
mod metrics;
mod not_older;
pub mod plan;
mod request;
mod resolved;
mod selection;
mod served;
mod service;
mod shards;
mod shareable;
mod spans;
mod sync;
#[cfg(test)]
mod testing;
mod typed;
mod unserved;
mod watch;

pub use answer::{ForwardReason, GetAnswer, ListAnswer, ListIdentity, ListItems, Outcome, WatchAnswer, WatchSource};
pub use config::{ConsistentReads, FRESHNESS_TIMEOUT, Modes, NotSynced, ProtobufReads, ReadsConfig};
pub use explain::{Fate, Forecast, Wait};
pub use metrics::ReadMetrics;
pub use not_older::NotOlder;
pub use plan::At;
pub use request::ReadRequest;
pub use selection::{Filter, IndexKey, Selection, WantedEncoding};
pub use served::{Served, Waited, refusal};
pub use service::Reads;
pub use typed::{OpenWatch, ReadSource, ReadState, WatchFrom, WatchTerms};
pub use unserved::Refusal;

/// The events of a watch; part of [`WatchSource`]'s interface.
pub use crate::cache::{CacheWatcher, EndReason, WatcherEvent};
/// Part of [`WatchAnswer`]'s and [`OpenWatch`]'s interface.
pub use crate::informer::Shareable;
/// Part of [`Reads`]'s interface.
pub use crate::informer::{Giver, Rent};
