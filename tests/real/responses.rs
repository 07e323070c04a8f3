//! What surrounds a body, beside a real kube-apiserver: warnings and compression.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod gzip;
mod warnings;

use crate::world::World;

impl World {
    /// Reads answered from a cache, or refused by one, so far.
    fn answered(&self) -> u64 {
        let http = &self.daemon.daemon.http;
        http.requests_served.get() + http.requests_refused.get()
    }
}
