//! What is known of listeners, clients and requests: statistics, metrics, ages, and the headers that explain an answer.

mod age;
mod clients;
pub(super) mod duration;
mod explain;
mod metrics;

pub(super) use age::Age;
pub use clients::Client;
pub(super) use clients::{ClientStats, Counting, Last, program};
pub(super) use explain::{NOT_FORWARDED, Plan, in_header};
pub use metrics::HttpMetrics;
