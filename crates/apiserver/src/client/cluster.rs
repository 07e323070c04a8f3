//! What is known of the cluster, and of the one that a new configuration leads to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::generation::Generation;
use super::source::{ConfigSource, Fingerprint};

/// What is known of the cluster.
#[derive(Default)]
pub(super) struct Cluster {
    /// A request has succeeded. Before that, nothing was read that another cluster could contradict.
    pub(super) answered: AtomicBool,
    /// The uid of its namespace `kube-system`.
    pub(super) uid: Mutex<Option<String>>,
    /// From when on it may be asked for.
    pub(super) asked: Mutex<Option<Instant>>,
    pub(super) moved: watch::Sender<bool>,
}

/// A configuration that names another server, since when it does, and whether that was logged.
pub(super) struct Candidate {
    pub(super) generation: Arc<Generation>,
    pub(super) since: Instant,
    pub(super) is_told: bool,
}

// === impl Cluster ===

impl Cluster {
    /// Whether the new configuration may lead to another cluster: it names another server. A server whose CA has nothing
    /// in common with the one before counts as another one: clusters on a laptop are created again at the same address. A
    /// pod is always in the same cluster.
    pub(super) fn must_be_shown(&self, source: &ConfigSource, old: &Generation, new: &Generation) -> bool {
        let (before, now) = (&old.certificates.authorities, &new.certificates.authorities);
        let is_trusted = before.is_empty() || now.is_empty() || before.iter().any(|authority| now.contains(authority));
        let (old, new) = (&old.endpoint, &new.endpoint);
        let is_same = old.base == new.base && old.prefix == new.prefix && is_trusted;
        !is_same && !matches!(source, ConfigSource::InCluster) && self.answered.load(Ordering::Relaxed)
    }
}

// === impl Candidate ===

impl Candidate {
    /// `last` is the candidate before. If it was read from the same files, it is this one.
    pub(super) fn new(next: Generation, last: Option<Self>) -> Self {
        let last = last.filter(|last| last.is_of(next.fingerprint));
        let (since, is_told) = last.map_or((Instant::now(), false), |last| (last.since, last.is_told));
        Self { generation: Arc::new(next), since, is_told }
    }

    pub(super) fn is_of(&self, fingerprint: Fingerprint) -> bool {
        self.generation.fingerprint == fingerprint
    }
}
