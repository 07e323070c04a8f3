//! Whether the apiserver answers, as shown on the status page and by `informerd status`.

use serde::{Deserialize, Serialize};

/// The results of the requests to the apiserver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Apiserver {
    /// Whether the last request got any answer.
    pub reachable: bool,
    /// How long `reachable` has had its current value.
    pub since_seconds: u64,
    /// Why the last request got no answer; empty while the apiserver answers, and before the first request.
    pub last_error: String,
    /// Seconds since the last data from the apiserver; `None` before the first.
    pub silent_seconds: Option<u64>,
}

// === impl Apiserver ===

impl Apiserver {
    /// Whether a request was sent and not answered. False before the first request.
    pub fn is_unreachable(&self) -> bool {
        !self.reachable && !self.last_error.is_empty()
    }
}
