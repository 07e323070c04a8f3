//! Birth and death of the process: tasks, readiness, signals and the drain. Imports no other room.

pub mod drain;
pub mod readiness;
pub mod signals;
mod task;

pub use task::{Failure, Fatal, panics, spawn, spawn_critical, spawn_supervised};
