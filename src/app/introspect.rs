//! The informers as the admin side shows them.

use std::fmt;

use tokio::time::Instant;

use crate::admin::{CacheInfo, Introspect};
use crate::informer::{Factory, Informer};
use crate::meta::{Encoding, ResourceVersion};

pub(super) struct Informers(pub(super) Factory);

impl Introspect for Informers {
    fn caches(&self) -> Vec<CacheInfo> {
        self.0.informers().iter().map(|informer| info(informer)).collect()
    }
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Informers")
    }
}

/// Zero if never.
fn seconds_since(at: Option<Instant>) -> u64 {
    at.map_or(0, |at| Instant::now().saturating_duration_since(at).as_secs())
}

fn info(informer: &Informer) -> CacheInfo {
    let stats = informer.cache.stats();
    let reflector = informer.reflector.status();
    let scope = &informer.key.scope;
    let count = |n: usize| n as u64;
    CacheInfo {
        resource: informer.key.gvr.group_resource(),
        api_version: informer.key.gvr.api_version(),
        namespace: scope.namespace.as_deref().unwrap_or("").to_owned(),
        field_selector: scope.field_selector.to_string(),
        label_selector: scope.label_selector.to_string(),
        encoding: match informer.key.encoding {
            Encoding::Json => "json",
            Encoding::Protobuf => "protobuf",
        }
        .to_owned(),
        ready: stats.state.is_ready(),
        state: reflector.state.to_string(),
        last_error: reflector.last_error.unwrap_or_default(),
        pinned: informer.is_pinned(),
        resource_version: stats.rv.to_string(),
        objects: count(stats.objects),
        bytes: count(stats.bytes),
        window_events: count(stats.window_events),
        window_bytes: count(stats.window_bytes),
        window_oldest: stats.window_oldest_rv.unwrap_or(ResourceVersion::ZERO).to_string(),
        window_seconds: stats.window_age.as_secs(),
        watchers: count(stats.watchers),
        groups: count(stats.groups),
        events: stats.events_total,
        relists: reflector.relists,
        idle_seconds: seconds_since(reflector.last_event),
        silent_seconds: seconds_since(informer.heard()),
    }
}
