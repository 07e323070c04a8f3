//! Whether a new configuration still leads to the cluster of the old one. If not, the process must start again: its caches,
//! and what its clients hold, are of the old one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::Request;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::generation::Generation;
use super::source::ConfigSource;
use super::{CallOptions, Identity, RequestVerb, Upstream, empty};

/// Lives as long as its cluster.
const PATH: &str = "/api/v1/namespaces/kube-system";
/// Timeout of one request for it.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a new server may fail to show its cluster: a configuration may be written in several steps, and credentials
/// may be renewed.
const UNKNOWN_FOR: Duration = Duration::from_secs(60);
/// How long a cluster that did not show its uid is not asked again: it may refuse this identity for good.
const AGAIN: Duration = Duration::from_secs(600);
/// Maximum size of an answer, in bytes.
const MOST: usize = 1 << 20;

/// What is known of the cluster.
pub(super) struct Cluster {
    /// A request has succeeded. Before that, nothing was read that another cluster could contradict.
    answered: AtomicBool,
    /// The uid of its namespace `kube-system`.
    uid: Mutex<Option<String>>,
    /// When it was last asked for.
    asked: Mutex<Option<Instant>>,
    /// Since when the configuration has named a server whose cluster is not known.
    unknown: Mutex<Option<Instant>>,
    moved: watch::Sender<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    uid: String,
}

// === impl Cluster ===

impl Default for Cluster {
    fn default() -> Self {
        let (answered, moved) = (AtomicBool::new(false), watch::Sender::new(false));
        Self { answered, uid: Mutex::default(), asked: Mutex::default(), unknown: Mutex::default(), moved }
    }
}

impl Cluster {
    pub(super) fn moved(&self) -> watch::Receiver<bool> {
        self.moved.subscribe()
    }

    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Whether the new configuration may lead to another cluster: it names another server. A server whose CA has nothing
    /// in common with the one before counts as another one: clusters on a laptop are created again at the same address. A
    /// pod is always in the same cluster.
    pub(super) fn must_be_shown(&self, source: &ConfigSource, old: &Generation, new: &Generation) -> bool {
        let (before, now) = (&old.certificates.authorities, &new.certificates.authorities);
        let is_trusted = before.is_empty() || now.is_empty() || before.iter().any(|authority| now.contains(authority));
        let is_same = old.base == new.base && old.prefix == new.prefix && is_trusted;
        !is_same && !matches!(source, ConfigSource::InCluster) && self.answered.load(Ordering::Relaxed)
    }
}

// === impl Upstream ===

impl Upstream {
    /// Remembers which cluster it is, while that can still be asked. Only a kubeconfig may name another one later.
    pub(super) async fn remember_cluster(&self) {
        let cluster = &self.inner.cluster;
        let is_open = cluster.answered.load(Ordering::Relaxed) && cluster.uid.lock().is_none();
        let is_due = cluster.asked.lock().is_none_or(|asked| asked.elapsed() >= AGAIN);
        if is_open && is_due && matches!(self.inner.source, ConfigSource::Kubeconfig { .. }) {
            *cluster.asked.lock() = Some(Instant::now());
            let uid = self.cluster_of(&self.inner.current.load_full()).await;
            *cluster.uid.lock() = uid;
        }
    }

    /// Uses the configuration that names another server if that is of the same cluster. If it is of another one, or did
    /// not show its cluster for [`UNKNOWN_FOR`], [`Upstream::moved`] becomes true. The lock of the configuration is not
    /// held while servers are asked.
    pub(super) async fn judge_candidate(&self) {
        let inner = &self.inner;
        let Some(next) = inner.reload.lock().await.candidate.clone() else {
            *inner.cluster.unknown.lock() = None;
            return;
        };
        let current = inner.current.load_full();
        let (theirs, known) = (self.cluster_of(&next).await, inner.cluster.uid.lock().clone());
        let ours = if known.is_some() { known } else { self.cluster_of(&current).await };
        let is_same = match (ours, theirs) {
            (Some(ours), Some(theirs)) => Some(ours == theirs),
            _ => None,
        };
        let (is_new, since) = {
            let mut unknown = inner.cluster.unknown.lock();
            (unknown.is_none(), *unknown.get_or_insert_with(Instant::now))
        };
        let mut reload = inner.reload.lock().await;
        if !reload.candidate.as_ref().is_some_and(|candidate| Arc::ptr_eq(candidate, &next)) {
            return;
        }
        let (from, to) = (&*current.authority, &*next.authority);
        if is_same == Some(true) {
            reload.candidate = None;
            *inner.cluster.unknown.lock() = None;
            self.adopt(&current, Arc::clone(&next));
        } else if is_same == Some(false) || since.elapsed() >= UNKNOWN_FOR {
            if !inner.cluster.moved.send_replace(true) {
                tracing::error!(from, to, "the configuration names an apiserver that may be of another cluster");
            }
        } else if is_new {
            tracing::warn!(
                from,
                to,
                "it is not known yet whether the apiserver that is configured now is of the same cluster"
            );
        }
    }

    /// The uid of the cluster of a configuration. `None` if nobody says it.
    fn cluster_of<'a>(&'a self, generation: &'a Generation) -> BoxFuture<'a, Option<String>> {
        let asked = async move {
            let options = CallOptions::new(RequestVerb::Get, "namespaces");
            let request = Request::get(PATH).body(empty()).ok()?;
            let request = self.prepare(generation, Identity::Own, request, &options).await.ok()?;
            let answer = generation.own.send(request, &options).await.ok()?;
            let body = Some(answer).filter(|answer| answer.status().is_success())?.into_body();
            let text =
                http_body_util::BodyExt::collect(http_body_util::Limited::new(body, MOST)).await.ok()?.to_bytes();
            serde_json::from_slice::<Namespace>(&text).ok().map(|it| it.metadata.uid).filter(|uid| !uid.is_empty())
        };
        // Boxed, because the type of what prepares requests is deep.
        timeout(PATIENCE, asked).map(|answer| answer.ok().flatten()).boxed()
    }
}

#[cfg(test)]
#[path = "moved_tests.rs"]
mod tests;
