//! The settings of tests, also of other modules.

use std::time::Duration;

use super::{ConsistentReads, Modes, NotSynced, ProtobufReads, ReadsConfig};

impl ReadsConfig {
    /// All reads in this mode. One waits this long for an informer or for a revision, and is then forwarded.
    pub(crate) fn simple(mode: ConsistentReads, wait: Duration) -> Self {
        let protobuf = ProtobufReads::Json;
        Self {
            modes: Modes { get: mode, list: mode, watch: mode, max_age: Duration::ZERO, protobuf, while_away: false },
            exceptions: Vec::new(),
            not_synced: NotSynced { wait, forward: true },
            freshness_timeout: wait,
            shared_groups: Vec::new(),
        }
    }
}
