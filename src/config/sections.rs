//! The typed settings, one section per module.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use informerd_injection::InjectionConfig;

use super::ResourceRule;
use super::parse::parse_memory_size;
use crate::authority::ObjectName;
use crate::http::HttpConfig;
use crate::packing::PackingForm;
use crate::passthrough::LendIdentity;
use crate::reads::ReadsConfig;
use crate::snapshots::SnapshotConfig;

/// The whole configuration of the daemon.
#[derive(Clone, Debug)]
pub struct Config {
    pub upstream: UpstreamConfig,
    /// At least one listener. Listeners that trust their clients are reachable only from this machine.
    pub http: HttpConfig,
    /// The CA that the replicas share. `None` if each replica has its own CA or uses files.
    pub authority: Option<crate::authority::AuthorityConfig>,
    /// The signer that issues the serving certificate, if there are neither files nor a CA of informerd.
    pub certificate_request: Option<crate::authority::RequestConfig>,
    /// How delegated listeners authenticate and authorize their clients.
    pub auth: crate::auth::AuthConfig,
    /// `None`: no audit log.
    pub audit: Option<crate::auth::audit::AuditConfig>,
    /// `None`: no access log.
    pub access_log: Option<crate::telemetry::lines::LinesTo>,
    pub admin: crate::admin::Config,
    /// The directory for data that must survive a restart: the self-issued CA.
    pub state_dir: PathBuf,
    /// The directory for the ServiceAccount files that other containers of the pod use; `None` if there is none. If
    /// it is set, there is an `https` listener with its own CA.
    pub drop_in_dir: Option<PathBuf>,
    /// Which requests without credentials are forwarded with the daemon's credentials.
    pub lend_identity: LendIdentity,
    pub informer: InformerConfig,
    pub reads: ReadsConfig,
    pub queues: crate::grpc::QueueConfig,
    /// The memory of the sliding window of events, per informer.
    pub window_max_bytes: usize,
    pub memory: MemoryConfig,
    /// `None`: caches are not kept on disk.
    pub snapshots: Option<SnapshotConfig>,
    /// The soft deadline of the drain. The ends of watches are spread over a shorter period, which is in the HTTP settings.
    pub drain_timeout: Duration,
    /// How pods are changed, by `informerd injector` and `informerd inject`.
    pub inject: InjectSettings,
    /// The number of threads of the traffic runtime. `None`: as many as the number of CPUs that the process may use.
    pub threads: Option<usize>,
    pub log: crate::telemetry::LogConfig,
    /// The settings from OpenTelemetry's own variables.
    pub otel: crate::telemetry::otel::OtelConfig,
}

/// How pods are changed, and where the webhook listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectSettings {
    pub listen: SocketAddr,
    /// The MutatingWebhookConfiguration.
    pub webhook: String,
    /// The Deployment of the injector itself, whose image sidecars get.
    pub deployment: Option<ObjectName>,
    /// Where informerd is found. Its image is a default, which the deployment and the command line replace.
    pub config: InjectionConfig,
}

/// The upstream cluster, and the identity to use there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Merged in this order. Empty: the service account of the current pod.
    pub kubeconfigs: Vec<PathBuf>,
    pub context: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformerConfig {
    /// The first rule that matches a resource applies.
    pub rules: Vec<ResourceRule>,
    pub idle_timeout: Duration,
    /// `None`: as many as the memory allows.
    pub max_informers: Option<usize>,
    /// How often each informer is compared with the store. Zero means never.
    pub store_check: Duration,
}

/// The memory of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    pub limit: MemoryLimit,
    pub form: PackingForm,
    /// Bytes of objects that stay plain because they are read.
    pub hot_bytes: usize,
}

/// The memory limit for all caches together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLimit {
    /// A percentage of the memory that the process may use.
    Percent(u8),
    Bytes(usize),
}

pub(super) fn parse_memory_limit(text: &str) -> Result<MemoryLimit, String> {
    let Some(digits) = text.strip_suffix('%') else { return parse_memory_size(text).map(MemoryLimit::Bytes) };
    let percent = digits.parse::<u8>().ok().filter(|percent| (1..=100).contains(percent));
    percent.map(MemoryLimit::Percent).ok_or_else(|| format!("{text:?}: want 1% to 100%"))
}
