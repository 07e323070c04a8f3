//! Whether the apiserver answers, as the status page and `informerd status` tell it.

use serde::{Deserialize, Serialize};

/// What the requests to the apiserver have come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Apiserver {
    /// Whether the last request got an answer, whatever it was.
    pub reachable: bool,
    /// For how long that is so.
    pub since_seconds: u64,
    /// Why the last request got no answer; empty while the apiserver answers, and before the first request.
    pub last_error: String,
    /// Seconds since anything came from it; `None` before anything did.
    pub silent_seconds: Option<u64>,
}

// === impl Apiserver ===

impl Apiserver {
    /// Whether it was asked and did not answer. Before the first request nobody knows.
    pub fn is_unreachable(&self) -> bool {
        !self.reachable && !self.last_error.is_empty()
    }
}
