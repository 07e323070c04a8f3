//! How a read was answered, for whoever wants to know: the metrics, and the header that explains an answer.

use std::time::Duration;

use tokio::time::Instant;

use crate::meta::{ResourceVersion, Status};

/// What a read had to wait for before it was served. The labels are a contract of `informerd_reads_total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waited {
    #[default]
    Nothing,
    /// For its informer to be synced, and perhaps for more.
    Sync,
    /// For the cache to be, or to be proved, fresh enough.
    Freshness,
}

/// What an answer from a cache is of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    pub waited: Waited,
    /// The revision of the state that was read, or that a watch begins after.
    pub rv: ResourceVersion,
    /// When the apiserver last said anything about this cache's resource; `None` if never.
    pub heard: Option<Instant>,
}

/// Why a read was refused, in the words of `informerd_reads_total`.
pub fn refusal(status: &Status) -> &'static str {
    match status.code {
        404 => "not_found",
        429 => "not_synced",
        _ => "other",
    }
}

// === impl Served ===

impl Served {
    /// How long the apiserver has said nothing about the resource; `None` if it never has.
    pub fn age(&self) -> Option<Duration> {
        self.heard.map(|heard| Instant::now().saturating_duration_since(heard))
    }
}

// === impl Waited ===

impl Waited {
    pub const ALL: [Self; 3] = [Self::Nothing, Self::Sync, Self::Freshness];

    /// The longer wait of two.
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, other) => other,
            (Self::Freshness, Self::Sync) => Self::Sync,
            (waited, _) => waited,
        }
    }

    pub fn plan(self) -> &'static str {
        if self == Self::Nothing { "serve" } else { "wait" }
    }

    /// Empty where nothing was waited for.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Sync => "not_synced",
            Self::Freshness => "not_fresh",
        }
    }
}
