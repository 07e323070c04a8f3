//! A controller's work queue, with the semantics of client-go's, for a group of workers. No I/O.
//!
//! [`WorkQueue`] hands keys out: each is in one worker's hands at a time, and waits only once however often it is added
//! meanwhile. [`Level`] is what the keys stand for: the latest state of every object, and the deletions that nobody has
//! handled yet.

mod core;
mod level;
mod limiter;
mod metrics;
mod queue;

pub(crate) use core::{Handed, Outcome, Why};
pub(crate) use level::{Deleted, Full, Level, State};
pub(crate) use metrics::{Histogram, QueueStats};
pub(crate) use queue::{WorkQueue, Worker};

#[cfg(test)]
mod model_tests;
