//! The start and the end of the process: tasks and their wakes, readiness, signals, the drain, and delays between attempts. Imports
//! no other module of the crate.

pub mod backoff;
pub mod drain;
pub mod ending;
pub mod quiet;
pub mod readiness;
pub mod signals;
mod task;
pub mod tied;
pub mod wakes;

pub use task::{Failure, Fatal, panics, spawn, spawn_critical, spawn_supervised};
