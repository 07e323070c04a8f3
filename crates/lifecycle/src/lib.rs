//! The start and the end of the process: tasks and their wakes, readiness, signals, the drain, delays between attempts, and the slots
//! of connections.

pub mod backoff;
pub mod drain;
pub mod ending;
pub mod multiplexer;
pub mod quiet;
pub mod readiness;
pub mod signals;
pub mod slots;
mod task;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tied;
pub mod turn;
pub mod wakes;
pub mod woken;

pub use task::{Failure, Fatal, contained, panics, spawn, spawn_critical, spawn_supervised};
