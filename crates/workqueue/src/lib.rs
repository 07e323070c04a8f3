//! A controller's work queue for a group of workers, with the semantics of client-go. This module does no I/O.
//!
//! [`WorkQueue`] hands out keys. Only one worker at a time holds a key. A waiting key is queued only once, however
//! often it is added. [`Level`] is the state behind the keys: the latest state of every object, and the deletions
//! that were not handled yet.

mod core;
mod level;
mod limiter;
mod metrics;
mod queue;

pub use core::{Handed, Outcome, Why};
pub use level::{Deleted, Full, Level, State};
pub use metrics::{Histogram, QueueStats};
pub use queue::{WorkQueue, Worker};

#[cfg(test)]
mod model_tests;
