//! Logs, metrics and traces, for the operator of the daemon.

pub mod gauge;
pub mod histogram;
pub mod lines;
mod log;
mod metrics;
pub mod otel;
mod process;
pub mod seldom;
pub mod stripes;
pub mod trace;

pub use log::LogConfig;
pub use metrics::{CONTENT_TYPE, Metrics};
pub use process::resident_bytes;
