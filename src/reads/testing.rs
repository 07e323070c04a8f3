//! The settings of tests, also of other modules.

use std::time::Duration;

use super::{ConsistentReads, Modes, NotSynced, ProtobufReads, ReadRequest, ReadsConfig};
use crate::codec::{Format, Shape};
use crate::meta::{Gvr, ListOptions};

impl ReadsConfig {
    /// All reads in this mode. One waits this long for an informer or for a revision, and is then forwarded.
    pub(crate) fn simple(mode: ConsistentReads, wait: Duration) -> Self {
        let protobuf = ProtobufReads::Json;
        Self {
            modes: Modes { consistent: mode, protobuf, while_away: false },
            exceptions: Vec::new(),
            not_synced: NotSynced { wait, forward: true },
            freshness_timeout: wait,
            shared_groups: Vec::new(),
        }
    }
}

impl ReadRequest {
    /// For whole objects in JSON, of all namespaces or by the namespace and name of one.
    pub(crate) fn simple(gvr: Gvr, one: Option<[&str; 2]>, options: ListOptions) -> Self {
        let [namespace, name] = one.map_or([None, None], |one| one.map(|name| Some(name.into())));
        Self {
            gvr,
            namespace,
            name,
            options,
            format: Format::json(Shape::Full),
            legacy_watch: false,
            own_credentials: false,
            gzip: false,
            local: false,
            stale: false,
            timeout: None,
        }
    }
}
