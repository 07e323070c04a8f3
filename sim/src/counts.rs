//! Records the requests to a server, for assertions such as "one upstream watch".

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;

/// The number of requests that are recorded in full.
const RECORDS: usize = 4096;

/// The kind of a request. A list with `limit=1` and no continue token is a probe of the revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Probe,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    /// Discovery, health and all other requests that do not name a resource.
    Other,
}

/// A copy of a server's counters at one moment. Resources are named like `pods` or `deployments.apps`.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    requests: BTreeMap<(Verb, Arc<str>), u64>,
    open: BTreeMap<Arc<str>, u64>,
    most: BTreeMap<Arc<str>, u64>,
    /// Changes sent to watches, without the initial state and without bookmarks.
    pub sent_events: u64,
    /// Bytes of the bodies of all responses, as sent: a compressed body counts compressed.
    pub sent_bytes: u64,
}

/// One request as received.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub authorization: Option<String>,
    pub headers: HeaderMap,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    counts: Mutex<Counts>,
    records: Mutex<VecDeque<RequestRecord>>,
}

/// An open watch. Dropping it decrements the counter.
#[derive(Debug)]
pub(super) struct OpenWatch {
    counters: Arc<Counters>,
    resource: Arc<str>,
}

// === impl Counts ===

impl Counts {
    /// The requests of a verb for a resource, `pods` or `deployments.apps`, whatever their response was.
    pub fn requests(&self, verb: Verb, resource: &str) -> u64 {
        self.requests.get(&(verb, resource.into())).copied().unwrap_or(0)
    }

    /// All requests of every verb, whatever their response was.
    pub fn all_requests(&self) -> u64 {
        self.requests.values().sum()
    }

    /// The watches of a resource that are open now.
    pub fn open_watches(&self, resource: &str) -> u64 {
        self.open.get(resource).copied().unwrap_or(0)
    }

    /// The most watches of a resource that were open at the same time.
    pub fn most_watches(&self, resource: &str) -> u64 {
        self.most.get(resource).copied().unwrap_or(0)
    }

    /// All watches that are open now.
    pub fn all_open_watches(&self) -> u64 {
        self.open.values().sum()
    }
}

// === impl Counters ===

impl Counters {
    pub(super) fn snapshot(&self) -> Counts {
        self.counts.lock().clone()
    }

    pub(super) fn records(&self) -> Vec<RequestRecord> {
        self.records.lock().iter().cloned().collect()
    }

    pub(super) fn record(&self, record: RequestRecord) {
        let mut records = self.records.lock();
        if records.len() == RECORDS {
            records.pop_front();
        }
        records.push_back(record);
    }

    pub(super) fn request(&self, verb: Verb, resource: &str) {
        *self.counts.lock().requests.entry((verb, resource.into())).or_default() += 1;
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.counts.lock().sent_bytes += bytes as u64;
    }

    pub(super) fn watch(self: &Arc<Self>, resource: &Arc<str>) -> OpenWatch {
        let mut counts = self.counts.lock();
        let open = counts.open.entry(resource.clone()).or_default();
        *open += 1;
        let open = *open;
        let most = counts.most.entry(resource.clone()).or_default();
        *most = open.max(*most);
        OpenWatch { counters: self.clone(), resource: resource.clone() }
    }
}

// === impl OpenWatch ===

impl OpenWatch {
    /// Counts a change that this watch is sent.
    pub(super) fn sent_event(&self) {
        self.counters.counts.lock().sent_events += 1;
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        if let Some(open) = self.counters.counts.lock().open.get_mut(&self.resource) {
            *open -= 1;
        }
    }
}
