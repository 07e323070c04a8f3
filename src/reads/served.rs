//! How a read was answered, for the metrics and for the header that explains an answer.

use std::time::Duration;

use tokio::time::Instant;

use crate::meta::{ResourceVersion, Status};

/// What a read had to wait for before it was served. The labels are a contract of `informerd_reads_total`.
/// The greater of two contains the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waited {
    #[default]
    Nothing,
    /// For the cache to be fresh enough, or to be proved so.
    Freshness,
    /// For its informer to be synced, and possibly for freshness as well.
    Sync,
}

/// The state behind an answer from a cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    pub waited: Waited,
    /// The revision of the state that was read, or the one after which a watch begins.
    pub rv: ResourceVersion,
    /// When data about this cache's resource last arrived from the apiserver; `None` if never.
    pub heard: Option<Instant>,
}

/// Why a read was refused, as a label of `informerd_reads_total`.
pub fn refusal(status: &Status) -> &'static str {
    match status.code {
        404 => "not_found",
        429 => "not_synced",
        _ => "other",
    }
}

// === impl Served ===

impl Served {
    /// The time since data about the resource last arrived from the apiserver; `None` if it never has.
    pub fn age(&self) -> Option<Duration> {
        self.heard.map(|heard| Instant::now().saturating_duration_since(heard))
    }
}

// === impl Waited ===

impl Waited {
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Sync, Self::Freshness];

    pub fn plan(self) -> &'static str {
        if self == Self::Nothing { "serve" } else { "wait" }
    }

    /// Empty if the read did not wait.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Sync => "not_synced",
            Self::Freshness => "not_fresh",
        }
    }
}
