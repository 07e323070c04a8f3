//! The read path without a wire: from a request to a plan, and the plan carried out.
//!
//! [`plan`] is the decision table, pure; [`Reads`] carries a plan out against the informers: serve, wait and serve,
//! forward with a reason, or refuse with a Status. HTTP and gRPC both speak through here.

mod advice;
mod allowance;
mod answer;
mod explain;
mod floors;
mod get;
mod gets;
mod list;
mod metrics;
pub mod plan;
mod request;
mod selection;
mod served;
mod service;
mod shards;
mod spans;
mod typed;
mod unserved;
mod watch;

pub use answer::{ForwardReason, GetAnswer, ListAnswer, ListIdentity, ListItems, Outcome, WatchAnswer, WatchSource};
pub use explain::{Fate, Forecast, Wait};
pub use floors::{Floor, Floors};
pub use metrics::ReadMetrics;
pub use plan::At;
pub use request::ReadRequest;
pub use selection::{Filter, IndexKey, Selection, Wanted};
pub use served::{Served, Waited, refusal};
pub use service::{ConsistentReads, Modes, NotSynced, ProtobufReads, Reads, ReadsConfig};
pub use typed::{OpenWatch, Refusal, Source, State, WatchFrom, WatchTerms};

/// What a watch yields; part of [`WatchSource`]'s interface.
pub use crate::cache::{CacheWatcher, EndReason, WatcherEvent};
