//! Events that take rights away: changes of roles and bindings, and the deletion of objects that tokens are bound to.
//! They are watched, so that they take effect at once and not only when a cached result expires.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;

use super::config::AuthConfig;
use super::followed::Followed;
use super::metrics::AuthMetrics;
use super::outage::Outage;
use super::rbac_generations::RbacGenerations;
use super::settling::Settling;
use super::user::{POD_UID, UserInfo};
use crate::apiserver::client::Upstream;
use crate::apiserver::metadata::{Collection, Seen, Whole, follow};
use crate::lifecycle::{Fatal, spawn_supervised};

/// An apiserver may accept the token of a deleted object for this long (its own caches live for 10 s). Longer if it is kept for longer
/// while the apiserver is away.
const REVOKED_FOR: Duration = Duration::from_secs(300);
/// How often the watch of a collection is tried again if it is forbidden.
const REFUSED: Duration = Duration::from_secs(60);
const MAX_REVOKED: usize = 65_536;

const RIGHTS: [(&str, &str); 4] = [
    ("/apis/rbac.authorization.k8s.io/v1/roles", "roles.rbac.authorization.k8s.io"),
    ("/apis/rbac.authorization.k8s.io/v1/rolebindings", "rolebindings.rbac.authorization.k8s.io"),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "clusterroles.rbac.authorization.k8s.io"),
    ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "clusterrolebindings.rbac.authorization.k8s.io"),
];

/// Service accounts and pods that were deleted while watched, by UID.
#[derive(Debug, Default)]
pub(super) struct Revoked {
    uids: Mutex<HashMap<Box<str>, Instant>>,
    /// How often deletions may have been missed.
    missed: AtomicU64,
    /// For how long deletions are remembered, if that is longer than [`REVOKED_FOR`].
    at_least: Duration,
    /// The watches of all service accounts, and of the pods of our own node.
    pub(super) accounts: Arc<Followed>,
    pub(super) pods: Arc<Followed>,
}

/// How many of the watches are lost: neither open nor refused, so changes may be missed.
struct Lost(Arc<AtomicUsize>);

/// One of them.
struct OneLost {
    all: Arc<AtomicUsize>,
    is_lost: bool,
}

/// Starts all watches.
pub(super) fn start(
    config: &AuthConfig,
    upstream: &Upstream,
    generations: &Arc<RbacGenerations>,
    revoked: &Arc<Revoked>,
    outage: &Arc<Outage>,
    metrics: &Arc<AuthMetrics>,
    fatal: &Fatal,
) {
    let lost = Lost(Arc::default());
    let (kept, generated) = (Arc::clone(outage), Arc::clone(generations));
    let sees_later = Box::new(move || kept.sees_later());
    let settling = Arc::new(Settling::new(RIGHTS.len(), generated, sees_later, Arc::clone(metrics)));
    spawn_supervised("settling-rights", Arc::clone(&settling).run(), fatal);
    for (path, resource) in RIGHTS {
        let settling = Arc::clone(&settling);
        let (mut open, mut lost) = (false, lost.one());
        let told = move |seen: Seen<'_>| {
            lost.tell(&seen);
            match &seen {
                Seen::Change { object, .. } => settling.change(&object.namespace),
                Seen::Restarted(_) => settling.change(""),
                Seen::Live | Seen::Pinged | Seen::Lost { .. } | Seen::Refused => {}
            }
            let now = !matches!(seen, Seen::Lost { .. } | Seen::Refused);
            if now != std::mem::replace(&mut open, now) {
                settling.watch(now);
            }
        };
        let collection = collection(path, resource, String::new());
        spawn_supervised("watching-rights", follow(upstream.clone(), collection, told), fatal);
    }
    let accounts = collection("/api/v1/serviceaccounts", "serviceaccounts", String::new());
    let mut bound = vec![(accounts, &revoked.accounts)];
    // Only the pods of our own node. If every node watched the pods of all nodes, that would be the load that informerd
    // is meant to avoid.
    if let Some(node) = &config.node {
        let field_selector = format!("spec.nodeName%3D{}", utf8_percent_encode(node, NON_ALPHANUMERIC));
        bound.push((collection("/api/v1/pods", "pods", field_selector), &revoked.pods));
    }
    for (collection, followed) in bound {
        let (followed, revoked, generations) = (Arc::clone(followed), revoked.clone(), generations.clone());
        let mut lost = lost.one();
        let told = move |seen: Seen<'_>| {
            lost.tell(&seen);
            if followed.tell(&seen) {
                generations.nudge();
            }
            revoked.tell(&seen, &generations);
        };
        spawn_supervised("watching-accounts", follow(upstream.clone(), collection, told), fatal);
    }
    let outage = Arc::clone(outage);
    spawn_supervised("outage", async move { outage.run(|| lost.is_none()).await }, fatal);
}

pub(super) fn collection(
    path: impl Into<Cow<'static, str>>,
    resource: &'static str,
    field_selector: String,
) -> Collection {
    Collection { path: path.into(), resource, field_selector, listed: false, whole: Whole::Nowhere, refused: REFUSED }
}

// === impl Lost ===

impl Lost {
    /// One more, which is lost until it tells otherwise.
    fn one(&self) -> OneLost {
        self.0.fetch_add(1, Ordering::AcqRel);
        OneLost { all: Arc::clone(&self.0), is_lost: true }
    }

    fn is_none(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

// === impl OneLost ===

impl OneLost {
    fn tell(&mut self, seen: &Seen<'_>) {
        let is_lost = matches!(seen, Seen::Lost { .. });
        match (std::mem::replace(&mut self.is_lost, is_lost), is_lost) {
            (false, true) => _ = self.all.fetch_add(1, Ordering::AcqRel),
            (true, false) => _ = self.all.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
    }
}

// === impl Revoked ===

impl Revoked {
    /// Remembers deletions for at least this long.
    pub(super) fn for_at_least(at_least: Duration) -> Self {
        Self { at_least, ..Self::default() }
    }

    /// Whether the user's service account, or the pod that its token is bound to, was deleted.
    pub(super) fn covers(&self, user: &UserInfo) -> bool {
        let uids = self.uids.lock();
        !uids.is_empty()
            && [Some(user.uid.as_str()), user.extra(POD_UID)].into_iter().flatten().any(|uid| uids.contains_key(uid))
    }

    /// Changes whenever deletions may have been missed. What was known of tokens before may be wrong then.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Acquire)
    }

    pub(super) fn tell(&self, seen: &Seen<'_>, generations: &RbacGenerations) {
        match seen {
            Seen::Change { deleted: true, object } => self.insert(&object.uid),
            Seen::Restarted(_) => _ = self.missed.fetch_add(1, Ordering::AcqRel),
            Seen::Change { .. } | Seen::Live | Seen::Pinged | Seen::Lost { .. } | Seen::Refused => return,
        }
        generations.nudge();
    }

    fn insert(&self, uid: &str) {
        let mut uids = self.uids.lock();
        if uids.len() >= MAX_REVOKED {
            let now = Instant::now();
            uids.retain(|_, until| *until > now);
        }
        // Beyond the limit, reviews still detect the deletion, only later.
        if !uid.is_empty() && uids.len() < MAX_REVOKED {
            uids.insert(uid.into(), Instant::now() + REVOKED_FOR.max(self.at_least));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::metadata::Metadata;

    #[test]
    fn a_watch_that_starts_anew_may_have_missed_deletions_and_one_that_goes_on_has_not() {
        let (revoked, generations) = (Revoked::default(), RbacGenerations::default());
        let mut changes = generations.changes();
        for (seen, missed, nudged) in [
            (Seen::Restarted(Vec::new()), 1, true),
            (Seen::Lost { is_due: false }, 1, false),
            (Seen::Live, 1, false),
            (Seen::Refused, 1, false),
            (Seen::Change { deleted: true, object: &Metadata::default() }, 1, true),
            (Seen::Change { deleted: false, object: &Metadata::default() }, 1, false),
            (Seen::Restarted(Vec::new()), 2, true),
        ] {
            changes.mark_unchanged();
            revoked.tell(&seen, &generations);
            assert_eq!((revoked.missed(), changes.has_changed().unwrap()), (missed, nudged), "{seen:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_deleted_covers_its_tokens() {
        let revoked = Revoked::default();
        let account = UserInfo { username: "system:serviceaccount:a:b".into(), uid: "1".into(), ..Default::default() };
        let extra = [(POD_UID.to_owned(), vec!["2".to_owned()])].into();
        let bound = UserInfo { uid: "3".into(), extra, ..Default::default() };
        revoked.insert("");
        assert!(!revoked.covers(&account) && !revoked.covers(&UserInfo::default()));
        revoked.insert("1");
        assert!(revoked.covers(&account) && !revoked.covers(&bound));
        revoked.insert("2");
        assert!(revoked.covers(&bound));
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_beyond_the_bound_are_remembered_when_earlier_ones_are_over() {
        let revoked = Revoked::default();
        let covers = |uid: &str| revoked.covers(&UserInfo { uid: uid.into(), ..Default::default() });
        (0..=MAX_REVOKED).for_each(|n| revoked.insert(&n.to_string()));
        assert!(covers("0") && covers(&(MAX_REVOKED - 1).to_string()) && !covers(&MAX_REVOKED.to_string()));
        tokio::time::advance(2 * REVOKED_FOR).await;
        revoked.insert("late");
        assert!(covers("late") && !covers("0"));
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_are_remembered_for_as_long_as_tokens_are_kept() {
        let revoked = Revoked::for_at_least(3 * REVOKED_FOR);
        let covers = |uid: &str| revoked.covers(&UserInfo { uid: uid.into(), ..Default::default() });
        (0..MAX_REVOKED).for_each(|n| revoked.insert(&n.to_string()));
        tokio::time::advance(2 * REVOKED_FOR).await;
        revoked.insert("late");
        assert!(covers("0") && !covers("late"));
        tokio::time::advance(2 * REVOKED_FOR).await;
        revoked.insert("late");
        assert!(covers("late") && !covers("0"));
    }

    #[test]
    fn a_watch_is_lost_until_it_is_open_or_refused() {
        let lost = Lost(Arc::default());
        let (mut first, mut second) = (lost.one(), lost.one());
        for (is_first, seen, is_none) in [
            (true, Seen::Restarted(Vec::new()), false),
            (true, Seen::Pinged, false),
            (false, Seen::Lost { is_due: false }, false),
            (false, Seen::Refused, true),
            (false, Seen::Lost { is_due: false }, false),
            (true, Seen::Lost { is_due: true }, false),
            (true, Seen::Live, false),
            (false, Seen::Refused, true),
        ] {
            let watch = if is_first { &mut first } else { &mut second };
            watch.tell(&seen);
            assert_eq!(lost.is_none(), is_none, "{seen:?}");
        }
    }
}
