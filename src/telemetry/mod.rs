//! Logs and metrics: what the operator sees of the daemon.

mod log;
mod metrics;
mod process;

pub use log::{LogConfig, LogFormat, LogHandle};
pub use metrics::{CONTENT_TYPE, Metrics, names};
pub use process::resident_bytes;
