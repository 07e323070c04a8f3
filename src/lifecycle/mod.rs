//! Birth and death of the process: tasks, readiness, signals and the drain; and the delays between attempts. Imports no other room.

pub mod backoff;
pub mod drain;
pub mod ending;
pub mod readiness;
pub mod signals;
mod task;

pub use task::{Failure, Fatal, panics, spawn, spawn_critical, spawn_supervised};
