//! Watches of single pods, where the pods of a node are not watched together: one for each pod whose token is in use.
//! Together they cost less than asking about each pod again and again, and less than a watch of all pods.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::followed::{Followed, Object};
use super::rbac_generations::RbacGenerations;
use super::revocation::{Revoked, collection};
use crate::apiserver::client::Upstream;
use crate::apiserver::metadata::{Seen, follow};
use crate::lifecycle::spawn;

/// Further pods are read instead, by [`super::pods`], and their tokens reviewed.
const MOST_WATCHES: usize = 256;
/// How long a watch stays that no token has needed.
const IDLE: Duration = Duration::from_secs(120);
/// How long no watch is tried after one was refused.
const REFUSED: Duration = Duration::from_secs(600);

pub(super) struct PodWatches {
    upstream: Upstream,
    revoked: Arc<Revoked>,
    generations: Arc<RbacGenerations>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_uid: HashMap<Box<str>, Watch>,
    not_before: Option<Instant>,
}

struct Watch {
    followed: Arc<Followed>,
    task: AbortHandle,
    used: Instant,
}

// === impl PodWatches ===

impl PodWatches {
    pub(super) fn new(upstream: Upstream, revoked: Arc<Revoked>, generations: Arc<RbacGenerations>) -> Self {
        Self { upstream, revoked, generations, open: Mutex::default() }
    }

    /// The watch of this pod, which may not be open yet. `None` if there is none.
    pub(super) fn of(self: &Arc<Self>, pod: &Object) -> Option<Arc<Followed>> {
        let now = Instant::now();
        let mut open = self.open.lock();
        let Open { by_uid, not_before } = &mut *open;
        if let Some(watch) = by_uid.get_mut(&pod.uid) {
            watch.used = now;
            return Some(Arc::clone(&watch.followed));
        }
        by_uid.retain(|_, watch| watch.used + IDLE > now);
        if by_uid.len() >= MOST_WATCHES || not_before.is_some_and(|not_before| now < not_before) {
            return None;
        }
        let followed = Arc::<Followed>::default();
        let task = self.follow(pod, Arc::clone(&followed));
        by_uid.insert(pod.uid.clone(), Watch { followed: Arc::clone(&followed), task, used: now });
        Some(followed)
    }

    fn follow(self: &Arc<Self>, pod: &Object, followed: Arc<Followed>) -> AbortHandle {
        let escaped = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let path = format!("/api/v1/namespaces/{}/pods", escaped(&pod.namespace));
        let collection = collection(path, "pods", format!("metadata.name%3D{}", escaped(&pod.name)));
        let (revoked, generations, all) =
            (Arc::clone(&self.revoked), Arc::clone(&self.generations), Arc::downgrade(self));
        let told = move |seen: Seen<'_>| {
            if followed.tell(&seen) {
                generations.nudge();
            }
            match seen {
                Seen::Change { .. } => revoked.tell(&seen, &generations),
                Seen::Refused => {
                    if let Some(all) = all.upgrade() {
                        *all.open.lock() = Open { by_uid: HashMap::new(), not_before: Some(Instant::now() + REFUSED) };
                    }
                }
                // A new start of this watch says nothing about other tokens.
                Seen::Restarted(_) | Seen::Lost { .. } | Seen::Live | Seen::Pinged => {}
            }
        };
        spawn("watching-pod", follow(self.upstream.clone(), collection, told)).abort_handle()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
        // Tokens that rest on it are reviewed before they are used again.
        self.followed.tell(&Seen::Refused);
    }
}

#[cfg(test)]
#[path = "pod_watches_tests.rs"]
mod tests;
