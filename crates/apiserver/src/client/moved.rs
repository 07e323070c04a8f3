//! Whether a new configuration still leads to the cluster of the old one. If not, the process must start again: its caches,
//! and what its clients hold, are of the old one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::Request;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::call::{CallOptions, Identity};
use super::connect::Wanted;
use super::generation::Generation;
use super::request_body::empty;
use super::source::ConfigSource;
use super::upstream::Upstream;
use crate::metrics::RequestVerb;

/// A namespace that lives as long as its cluster.
pub const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";
/// Timeout of one request for the uid of a cluster.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a new server may fail to show its cluster: a configuration may be written in several steps, and credentials
/// may be renewed.
const UNKNOWN_FOR: Duration = Duration::from_secs(60);
/// Time before a cluster that did not answer is asked for its uid again, and before one that refused is.
const AGAIN: Duration = Duration::from_secs(10);
const REFUSED: Duration = Duration::from_secs(600);
/// How many looks at the configuration come before the first question.
const LOOKS: u32 = 60;
/// Maximum size of an answer, in bytes.
const MOST: usize = 1 << 20;

#[derive(Debug, Default, Deserialize)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    uid: String,
}

// === impl Upstream ===

impl Upstream {
    /// Remembers which cluster it is, while that can still be asked. Only a kubeconfig may name another one later. To be called
    /// at each look at it: it is asked after [`LOOKS`], so that a process that lives for seconds does not ask.
    pub(super) async fn remember_cluster(&self) {
        let cluster = &self.inner.cluster;
        let is_open = cluster.answered.load(Ordering::Relaxed) && cluster.uid.lock().is_none();
        let first = || Instant::now() + LOOKS * self.inner.config.check_interval;
        if is_open
            && *cluster.asked.lock().get_or_insert_with(first) <= Instant::now()
            && matches!(self.inner.source, ConfigSource::Kubeconfig { .. })
        {
            let answer = self.cluster_of(&self.inner.current.load_full(), false).await;
            let pause = if matches!(answer, Err(Some(401 | 403 | 404))) { REFUSED } else { AGAIN };
            *cluster.asked.lock() = Some(Instant::now() + pause);
            *cluster.uid.lock() = answer.ok();
        }
    }

    /// Uses the configuration that names another server if that is of the same cluster. If it is of another one, or did
    /// not show its cluster for [`UNKNOWN_FOR`], [`Upstream::moved`] becomes true. The lock of the configuration is not
    /// held while servers are asked.
    pub(super) async fn judge_candidate(&self) {
        let inner = &self.inner;
        let Some(next) = inner.reload.lock().await.candidate.as_ref().map(|next| Arc::clone(&next.generation)) else {
            return;
        };
        let current = inner.current.load_full();
        let (theirs, known) = (self.cluster_of(&next, true).await, inner.cluster.uid.lock().clone());
        let ours = match known {
            None => self.cluster_of(&current, false).await.ok(),
            known => known,
        };
        inner.cluster.uid.lock().clone_from(&ours);
        let is_same = ours.zip(theirs.ok()).map(|(ours, theirs)| ours == theirs);
        let mut reload = inner.reload.lock().await;
        let Some(candidate) = reload.candidate.as_mut().filter(|it| Arc::ptr_eq(&it.generation, &next)) else { return };
        let (from, to) = (&*current.endpoint.authority, &*next.endpoint.authority);
        if is_same == Some(true) {
            reload.candidate = None;
            self.adopt(&current, Arc::clone(&next));
        } else if is_same == Some(false) || candidate.since.elapsed() >= UNKNOWN_FOR {
            if !inner.cluster.moved.send_replace(true) {
                tracing::error!(from, to, "the configuration names an apiserver that may be of another cluster");
            }
        } else if !std::mem::replace(&mut candidate.is_told, true) {
            tracing::warn!(from, to, "the configuration names another apiserver, whose cluster is not known yet");
        }
    }

    /// The uid of the cluster of a configuration.
    ///
    /// # Errors
    /// The status of an answer that does not say it; `None` without an answer.
    async fn cluster_of(&self, generation: &Generation, is_new: bool) -> Result<String, Option<u16>> {
        let asked = async {
            let options = CallOptions::new(RequestVerb::Get, "namespaces");
            let request = Request::get(KUBE_SYSTEM).body(empty()).ok()?;
            let request = self.prepare(generation, Identity::Own, request, &options).await.ok()?;
            let pool = generation.pool(Identity::Own);
            if is_new && pool.connections.must_dial(Wanted::Any) {
                // A request that has to connect for long would cast doubt on the server that is in use.
                pool.renew().await.ok()?;
            }
            let (head, body) = pool.send(request, &options).await.ok()?.into_parts();
            let text =
                http_body_util::BodyExt::collect(http_body_util::Limited::new(body, MOST)).await.ok()?.to_bytes();
            let uid = serde_json::from_slice::<Namespace>(&text).ok().map(|it| it.metadata.uid);
            Some((head.status, uid.filter(|uid| !uid.is_empty())))
        };
        // Boxed, because the type of what prepares requests is deep.
        match timeout(PATIENCE, asked.boxed()).await.ok().flatten() {
            Some((status, Some(uid))) if status.is_success() => Ok(uid),
            other => Err(other.map(|(status, _)| status.as_u16())),
        }
    }
}

#[cfg(test)]
#[path = "moved_tests.rs"]
mod tests;
