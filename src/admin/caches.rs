//! The visible state of the daemon: an entry for each informer, and totals.

use std::fmt::Debug;

use http::request::Parts;
use informerd_status::Apiserver;
use serde::Serialize;

use super::{Explaining, Totals};

/// Provides the state of everything without waiting.
pub(crate) trait Introspect: Debug + Send + Sync + 'static {
    fn caches(&self) -> Vec<CacheInfo>;
    fn totals(&self) -> Totals;
    fn apiserver(&self) -> Apiserver;

    /// A bounded number of clients, the most important first.
    fn clients(&self) -> Vec<ClientInfo>;

    /// A bounded number of entries, the most frequent first.
    fn forwards(&self) -> Vec<ForwardInfo>;

    /// The work queues, of which there is a bounded number.
    fn queues(&self) -> Vec<QueueInfo>;

    /// Predicts how this request would be answered, without executing it.
    fn explain(&self, request: Parts) -> Explaining;
}

/// One client as the status page shows it. It contains no credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ClientInfo {
    pub address: String,
    /// The last user, if clients are authenticated.
    pub user: String,
    pub program: String,
    pub protocol: &'static str,
    pub requests: u64,
    /// Watches that are open now.
    pub watches: u64,
    pub bytes: u64,
    /// Reads that were forwarded to the apiserver.
    pub forwarded: u64,
}

/// Reads of one client that were forwarded to the apiserver for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ForwardInfo {
    pub address: String,
    pub user: String,
    pub program: String,
    pub protocol: &'static str,
    /// A label of `informerd_reads_total`.
    pub reason: &'static str,
    pub count: u64,
    pub cause: &'static str,
    /// What to change so that such reads are served from a cache.
    pub change: &'static str,
}

/// One work queue. Only numbers, its name and its owner are shown, never its keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueInfo {
    pub name: String,
    /// The user of a delegated listener that the queue belongs to, or empty.
    pub user: String,
    pub workers: u64,
    /// Objects that the queue selects.
    pub objects: u64,
    /// Keys that are ready and that no worker holds.
    pub depth: u64,
    /// Keys that workers hold.
    pub held: u64,
    /// Keys that wait for their time.
    pub delayed: u64,
    /// Deletions that wait to be handled.
    pub deletions: u64,
    pub adds: u64,
    pub retries: u64,
    /// Keys that were returned because their worker disconnected.
    pub returned: u64,
    /// How long the key that is held longest has been held, in seconds.
    pub longest_seconds: f64,
}

/// One informer as `/debug/caches` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CacheInfo {
    /// `deployments.apps`, as in the apiserver's messages.
    pub resource: String,
    pub api_version: String,
    /// Empty: all namespaces.
    pub namespace: String,
    pub field_selector: String,
    pub label_selector: String,
    /// `json` or `protobuf`.
    pub encoding: String,
    /// Whether it can answer reads now.
    pub ready: bool,
    /// The reflector's state, such as `follow` or `wait`.
    pub state: String,
    /// The same state in words, such as `watching` or `waiting to retry`.
    pub step: String,
    /// Seconds until the next attempt, while it waits.
    pub retry_seconds: Option<u64>,
    /// Whether events are currently not followed because of the last error.
    pub failing: bool,
    /// The last error, even if the informer has recovered since. Empty if there was none.
    pub last_error: String,
    /// Seconds since the last error.
    pub error_seconds: Option<u64>,
    /// What the apiserver is currently assumed to refuse: `resource`, `encoding`, `watchList`.
    pub refuses: Vec<&'static str>,
    pub pinned: bool,
    /// A string, as everywhere in Kubernetes.
    pub resource_version: String,
    pub objects: u64,
    /// Memory of the objects.
    pub bytes: u64,
    pub window_events: u64,
    pub window_bytes: u64,
    /// The oldest revision that a watch can start after.
    pub window_oldest: String,
    /// Age of the oldest event in the window.
    pub window_seconds: u64,
    pub watchers: u64,
    /// Distinct predicates among the watchers.
    pub groups: u64,
    /// Events received since the informer started.
    pub events: u64,
    /// Lists after the first since the informer started.
    pub relists: u64,
    /// Watches that were given up because they were open and did not deliver what the apiserver has.
    pub silent_watches: u64,
    /// Seconds since the last event.
    pub idle_seconds: u64,
    /// Seconds since the apiserver last reported anything on the resource: an event, a bookmark, or an answer.
    pub silent_seconds: u64,
}

/// Sorts by resource, namespace and encoding.
pub(super) fn sorted(mut caches: Vec<CacheInfo>) -> Vec<CacheInfo> {
    caches.sort_by(|a, b| (&a.resource, &a.namespace, &a.encoding).cmp(&(&b.resource, &b.namespace, &b.encoding)));
    caches
}
