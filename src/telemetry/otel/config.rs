//! What is exported, where to, and in which portions.

use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry_sdk::trace::Sampler;

/// Settings of the export; without spans and metrics there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtelConfig {
    /// Attributes of the resource besides our own, which they replace where they have the same name.
    pub resource: Vec<(String, String)>,
    pub spans: Option<SpansExport>,
    pub metrics: Option<MetricsExport>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpansExport {
    pub target: OtlpTarget,
    pub sampler: TraceSampler,
    /// Spans that may wait to be sent; one more is dropped and counted.
    pub queue: usize,
    /// Spans in one message, at most.
    pub batch: usize,
    /// How long spans wait for others.
    pub delay: Duration,
    /// For one message with all attempts to send it.
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MetricsExport {
    pub target: OtlpTarget,
    pub interval: Duration,
    pub timeout: Duration,
}

/// A collector. The headers are marked as sensitive, so that no log shows them.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpTarget {
    /// By HTTP with the whole path; by gRPC the path does not count.
    pub endpoint: Uri,
    pub protocol: Protocol,
    pub headers: HeaderMap,
    /// For one attempt.
    pub timeout: Duration,
    pub gzip: bool,
    /// PEM of the CAs that are trusted; without it those of the system.
    pub ca: Option<String>,
    /// PEM of a client certificate, and of its key.
    pub client: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    Http,
}

/// Which traces are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceSampler {
    All,
    Nothing,
    /// This part of them, by their id.
    Ratio(f64),
    /// As the parent says; without one all of them, nothing, or a part.
    ParentOrAll,
    ParentOrNothing,
    ParentOrRatio(f64),
}

// === impl TraceSampler ===

impl TraceSampler {
    pub(super) fn sampler(self) -> Sampler {
        let parent_or = |root| Sampler::ParentBased(Box::new(root));
        match self {
            Self::All => Sampler::AlwaysOn,
            Self::Nothing => Sampler::AlwaysOff,
            Self::Ratio(part) => Sampler::TraceIdRatioBased(part),
            Self::ParentOrAll => parent_or(Sampler::AlwaysOn),
            Self::ParentOrNothing => parent_or(Sampler::AlwaysOff),
            Self::ParentOrRatio(part) => parent_or(Sampler::TraceIdRatioBased(part)),
        }
    }
}
