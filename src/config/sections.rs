//! The typed settings, one section for each room.

use std::path::PathBuf;
use std::time::Duration;

use super::ResourceRule;
use crate::http::HttpConfig;
use crate::passthrough::LendIdentity;
use crate::reads::Modes;

/// Everything the daemon is told.
#[derive(Clone, Debug)]
pub struct Config {
    pub upstream: UpstreamConfig,
    /// At least one listener. Those that trust their clients are reachable from this machine only.
    pub http: HttpConfig,
    /// The CA that replicas share; `None`: each has its own, or files.
    pub authority: Option<crate::authority::AuthorityConfig>,
    /// The signer that issues the serving certificate, if neither files nor a CA of informerd do.
    pub certificate_request: Option<crate::authority::RequestConfig>,
    /// How delegated listeners tell their clients apart.
    pub auth: crate::auth::AuthConfig,
    /// `None`: no audit log.
    pub audit: Option<crate::auth::audit::AuditConfig>,
    /// `None`: no access log.
    pub access_log: Option<crate::telemetry::lines::LinesTo>,
    pub admin: crate::admin::Config,
    /// What must outlive the process: the self-issued CA.
    pub state_dir: PathBuf,
    /// Where the files of the ServiceAccount are kept for other containers of the pod; `None`: nowhere. There is an `https`
    /// listener with a CA of its own then.
    pub drop_in_dir: Option<PathBuf>,
    /// Which requests without credentials of their own are forwarded with the daemon's.
    pub lend_identity: LendIdentity,
    pub informer: InformerConfig,
    pub reads: ReadsConfig,
    pub queues: QueuesConfig,
    pub window: WindowConfig,
    pub memory: MemoryConfig,
    pub drain: DrainConfig,
    /// Threads of the traffic runtime; `None`: as many as the process may use processors.
    pub threads: Option<usize>,
    pub log: crate::telemetry::LogConfig,
    /// What OpenTelemetry's own variables say.
    pub otel: crate::telemetry::otel::OtelConfig,
}

/// Whom to talk to, and as whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// `None`: the service account of the pod this runs in.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerConfig {
    /// The first rule that matches a resource decides.
    pub rules: Vec<ResourceRule>,
    pub idle_timeout: Duration,
    pub max_informers: usize,
    /// How often each informer is compared with the store; zero: never.
    pub store_check: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadsConfig {
    pub modes: Modes,
    /// How long a read waits for a resourceVersion.
    pub freshness_timeout: Duration,
    /// How long a read waits for an informer that is not synced.
    pub wait: Duration,
    pub then: Then,
}

/// What happens to a read whose informer did not get synced in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Forward,
    /// 429 with Retry-After.
    Refuse,
}

/// The work queues of gRPC clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuesConfig {
    /// How long one is kept without workers.
    pub linger: Duration,
    pub max_groups: usize,
    /// Per selection.
    pub max_deletions: usize,
}

/// The sliding window of events, per informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    pub min_age: Duration,
    pub max_events: usize,
    pub max_bytes: usize,
}

/// What all caches may use together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryConfig {
    /// A share of the memory that the process may use.
    Percent(u8),
    Bytes(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainConfig {
    /// The soft deadline. The ends of watches are spread over a shorter time, which is in the HTTP settings.
    pub timeout: Duration,
}
