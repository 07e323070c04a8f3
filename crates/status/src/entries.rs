//! The lists of `/status.json`. A field that another version lacks is zero or empty.

use serde::{Deserialize, Serialize};

/// Everything of which there are several.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Lists {
    pub caches: Vec<Cache>,
    /// A bounded number of clients, the most important first.
    pub clients: Vec<Client>,
    /// A bounded number of entries, the most frequent first.
    pub forwards: Vec<Forward>,
    /// The work queues, of which there is a bounded number.
    pub queues: Vec<Queue>,
}

/// One informer, as `/debug/caches` shows it, too.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cache {
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
    pub refuses: Vec<String>,
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
    /// Seconds since the apiserver last reported anything on the resource: an event, a bookmark, or an answer. An older
    /// daemon does not tell.
    pub silent_seconds: Option<u64>,
}

/// One client. It contains no credentials.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    pub address: String,
    /// The last user, if clients are authenticated.
    pub user: String,
    pub program: String,
    pub protocol: String,
    pub requests: u64,
    /// Watches that are open now.
    pub watches: u64,
    pub bytes: u64,
    /// Reads that were forwarded to the apiserver.
    pub forwarded: u64,
}

/// Reads of one client that were forwarded to the apiserver for one reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Forward {
    pub address: String,
    pub user: String,
    pub program: String,
    pub protocol: String,
    /// A label of `informerd_reads_total`.
    pub reason: String,
    pub count: u64,
    pub cause: String,
    /// What to change so that such reads are served from a cache.
    pub change: String,
}

/// One work queue. Only numbers, its name and its owner are shown, never its keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Queue {
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
