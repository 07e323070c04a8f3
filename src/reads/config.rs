//! The settings of the read path, and the mode of one read.

use std::time::Duration;

use crate::meta::Verb;

/// How reads of the newest state are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsistentReads {
    /// Forward them; identical reads that wait at the same time share one upstream read.
    Upstream,
    /// Use the cheapest exact way: prove that the cache is at the apiserver's revision and serve from it, or forward.
    Auto,
    /// Serve a state that was proved to be the newest at most so long ago.
    Bounded(Duration),
    /// Ask the apiserver for its revision, prove that the cache has reached it, and serve from the cache.
    Probe,
    /// Serve the state of the cache, but never one older than this daemon has already shown.
    Cache,
}

/// How a read that prefers protobuf is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtobufReads {
    /// In protobuf, from a separate informer.
    Serve,
    /// In JSON from the informer of JSON, if the client accepts JSON too; otherwise it is forwarded.
    Json,
    /// Forwarded to the apiserver.
    Forward,
}

/// The modes of reads of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    pub consistent: ConsistentReads,
    pub protobuf: ProtobufReads,
    /// Whether reads are answered with an old state while the apiserver does not answer.
    pub while_away: bool,
}

/// How long a read waits for a revision. The apiserver's own limit is the same.
pub const FRESHNESS_TIMEOUT: Duration = Duration::from_secs(3);

/// What to do with a read whose informer is not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSynced {
    /// How long it waits first.
    pub wait: Duration,
    /// After the wait: forward it, or refuse it with 429 and Retry-After.
    pub forward: bool,
}

/// Settings of the read path.
#[derive(Clone, Debug)]
pub struct ReadsConfig {
    pub modes: Modes,
    /// Exceptions from `modes`, by group and resource; the first match wins. `*` matches any.
    pub exceptions: Vec<(String, String, Modes)>,
    pub not_synced: NotSynced,
    /// How long a read waits for a revision ([`FRESHNESS_TIMEOUT`]).
    pub freshness_timeout: Duration,
    /// API groups whose aggregated API servers give all clients the same answers.
    pub shared_groups: Vec<String>,
}

// === impl ConsistentReads ===

impl ConsistentReads {
    /// With the age that is meant if none is given. It is too short for people to notice, and long enough for many reads to
    /// share a proof.
    pub const BOUNDED: Self = Self::Bounded(Duration::from_millis(100));

    /// The mode for a request. A read that cannot be forwarded is proved, at the cost of a read of our own. If a client
    /// of a trusted listener sends its own credentials, its reads are forwarded, unless a configured mode says
    /// otherwise: by default, no client gets the newest state that would not get it without informerd.
    pub(super) fn of(self, verb: Verb, local: bool, own_credentials: bool) -> Self {
        match self {
            Self::Upstream | Self::Auto if local => Self::Probe,
            Self::Auto if own_credentials && verb != Verb::Watch => Self::Upstream,
            mode => mode,
        }
    }
}
