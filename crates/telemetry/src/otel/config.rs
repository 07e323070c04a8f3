//! The settings of the export: what is exported, where, and in which batches.

use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry_sdk::trace::Sampler;

/// The settings of the export. Without `spans` and `metrics` nothing is exported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtelConfig {
    /// Additional attributes of the resource. They replace informerd's own attributes of the same name.
    pub resource: Vec<(String, String)>,
    pub spans: Option<SpansExport>,
    pub metrics: Option<MetricsExport>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpansExport {
    pub target: OtlpTarget,
    pub sampler: TraceSampler,
    /// The most spans that may wait to be sent. Further spans are dropped and counted.
    pub queue: usize,
    /// The most spans in one message.
    pub batch: usize,
    /// How long spans wait for other spans.
    pub delay: Duration,
    /// The timeout for one message, including all retries.
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MetricsExport {
    pub target: OtlpTarget,
    pub interval: Duration,
    pub timeout: Duration,
}

/// A collector. The headers are marked as sensitive, so no log shows them.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpTarget {
    /// For HTTP, the complete URL. For gRPC, the path is ignored.
    pub endpoint: Uri,
    pub protocol: Protocol,
    pub headers: HeaderMap,
    /// The timeout of one attempt.
    pub timeout: Duration,
    pub gzip: bool,
    /// The trusted CAs in PEM format. `None`: the CAs of the system.
    pub ca: Option<String>,
    /// A client certificate and its key, in PEM format.
    pub client: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Grpc,
    Http,
}

/// Which traces are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TraceSampler {
    All,
    Nothing,
    /// This fraction of the traces, selected by trace id.
    Ratio(f64),
    /// The decision of the parent span. Without a parent: all traces, none, or a fraction.
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
