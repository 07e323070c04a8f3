//! Watches of single pods, where the pods of a node are not watched together: one for each pod whose token is in use.
//! Together they cost less than asking about each pod again and again, and less than a watch of all pods.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::followed::Followed;
use super::rbac_generations::RbacGenerations;
use super::revocation::{Revoked, collection};
use super::user::Object;
use crate::apiserver::client::Upstream;
use crate::apiserver::metadata::{Seen, follow};
use crate::lifecycle::spawn;

/// Further pods are read instead, by [`super::pods`], and their tokens reviewed. Where as many namespaces refuse, none is tried.
const MOST_WATCHES: usize = 256;
/// How long a watch stays that no token has needed.
const IDLE: Duration = Duration::from_secs(120);
/// How long no watch is tried in a namespace after one was refused there.
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
    /// The namespaces that refuse, and until when none is tried there.
    refused: HashMap<Box<str>, Instant>,
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
        let Open { by_uid, refused } = &mut *open;
        if let Some(watch) = by_uid.get_mut(&pod.uid) {
            watch.used = now;
            return Some(Arc::clone(&watch.followed));
        }
        refused.retain(|_, until| now < *until);
        if by_uid.len() >= MOST_WATCHES || refused.len() >= MOST_WATCHES || refused.contains_key(&pod.namespace) {
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
        let idle = Self::idle(Arc::downgrade(self), pod.uid.clone());
        let (all, pod) = (Arc::downgrade(self), pod.clone());
        let told = move |seen: Seen<'_>| {
            let Some(all) = all.upgrade() else { return };
            if followed.tell(&seen) {
                all.generations.nudge();
            }
            match &seen {
                Seen::Change { deleted, object } => {
                    all.revoked.tell(&seen, &all.generations);
                    if *deleted && *object.uid == *pod.uid {
                        all.open.lock().by_uid.remove(&pod.uid);
                    }
                }
                Seen::Refused => {
                    let mut open = all.open.lock();
                    open.by_uid.remove(&pod.uid);
                    open.refused.insert(pod.namespace.clone(), Instant::now() + REFUSED);
                }
                // A new start of this watch says nothing about other tokens.
                Seen::Restarted(_) | Seen::Lost { .. } | Seen::Live | Seen::Pinged => {}
            }
        };
        let watching = follow(self.upstream.clone(), collection, told);
        let task = async move {
            tokio::select! { () = watching => {}, () = idle => {} }
        };
        spawn("watching-pod", task).abort_handle()
    }

    /// Returns when no token has needed the watch of this pod for so long, and has taken it out.
    async fn idle(all: Weak<Self>, uid: Box<str>) {
        while let Some(until) = all.upgrade().and_then(|all| all.needed_until(&uid)) {
            sleep_until(until).await;
        }
    }

    fn needed_until(&self, uid: &str) -> Option<Instant> {
        let mut open = self.open.lock();
        let until = open.by_uid.get(uid)?.used + IDLE;
        if until <= Instant::now() {
            open.by_uid.remove(uid);
            return None;
        }
        Some(until)
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
