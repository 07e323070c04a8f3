//! Tokens of service accounts, which are reviewed once and then stand for as long as what they are bound to is there.
//!
//! The apiserver accepts such a token until its `exp`, while the service account and the pod that it names exist with the
//! UIDs that it names. So a token that a TokenReview has accepted needs no further one before its end if watches would show
//! the end of these objects. Instead of a new review every `ttl`, these things are looked at here, without a request:
//!
//! - **The claims are the apiserver's.** They are read only from a token that a review has just accepted, and only if the
//!   review's user says the same: the name and UID of the account, and the name and UID of the pod. Tokens that are bound to
//!   anything else (a Secret, a node), or to something that is not known here, are reviewed every `ttl`.
//! - **The objects are there.** Each was read from the store, with its UID and not being deleted, while its watch was open:
//!   [`super::followed`]. A watch reports every later change, so nothing is gone before its event comes. A deletion ends all
//!   that rests on the object at once ([`Revoked`]). From the beginning of a deletion on, reviews are periodic again. A UID
//!   is never used again.
//! - **The watches are alive.** A watch that breaks, starts anew, is refused, or whose store went back ends the standing of all
//!   its tokens. What was known of them before is used until its `ttl` is over: all are reviewed, but not in the same
//!   instant. While it is not open, they are reviewed every `ttl`. Afterwards they are reviewed
//!   once (accounts), or their pods are looked up again. A dead connection is found in 9 s, by a PING of HTTP/2, so a token whose
//!   end was not seen lives for these 9 s and `ttl`. With reviews alone, it lives for 10 s in the apiserver's cache and `ttl` in
//!   the one here. Over HTTP/1.1, which has no PING, no token stands. Only a watch whose time is over is trusted to go on: the
//!   apiserver itself has ended it at the time that it was asked to. A single stream that is stuck while its connection
//!   answers is noticed after 75 s, for lack of the bookmark that comes each minute: a token whose end it hides is accepted
//!   for that long, and for `ttl`. A review would not see more if the apiserver is the cause, because it reads accounts and pods
//!   through watches of the same cache.
//! - **The apiserver has not refused it.** A review that does not accept the token, or a 401 to a request that was forwarded
//!   with it, ends its standing. After a 401, it does not stand again before a request with it is accepted: a server behind the
//!   apiserver may refuse it again and again, and each time that it stands costs a review.
//! - **The clocks agree, or the earlier end counts.** The end is counted from the apiserver's clock (the `Date` of the
//!   review) and from this machine's, by a clock that nobody sets. Whenever a token is used again, this machine's clock is
//!   asked too, because the other one stands still while a machine sleeps.
//! - **What no watch shows** is a signing key that is taken away. The apiserver has to be restarted for that, which breaks
//!   the watch of accounts. As other apiservers may behave otherwise, a token is reviewed again after [`LONGEST`].
//!
//! If the apiserver cannot be asked, nothing stands for longer than these 9 s and `ttl`: its watches are lost then. While it is away,
//! [`super::outage`] says what counts.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use super::claims::{claims, now};
use super::ends_at::EndsAt;
use super::followed::There;
use super::pod_watches::PodWatches;
use super::review::Reviews;
use super::revocation::Revoked;
use super::user::{Object, POD_NAME, POD_UID, UserInfo};

/// How long a review is relied on.
const LONGEST: Duration = Duration::from_secs(3600);
/// The most tokens. The least used are evicted first, and reviewed every `ttl`.
const MAX_TOKENS: u64 = 8192;
/// How long a token is kept that nobody shows.
const IDLE: Duration = Duration::from_secs(600);
/// How long an object that was not found is not looked up again, and its tokens are reviewed every `ttl`.
const IN_VAIN: Duration = Duration::from_secs(60);

pub(super) struct Standing {
    reviews: Arc<Reviews>,
    revoked: Arc<Revoked>,
    /// `None` if the pods of all accepted tokens are watched together.
    pod_watches: Option<Arc<PodWatches>>,
    /// By the token's hash.
    accepted: Cache<[u8; 32], Arc<Accepted>>,
    /// The objects that were not found, by UID.
    in_vain: Cache<Box<str>, ()>,
}

/// What a review has accepted.
#[derive(Debug)]
struct Accepted {
    user: Arc<UserInfo>,
    bound: Bound,
    until: Instant,
    losses: u64,
}

/// The objects that a token is bound to, and its end in seconds since 1970.
#[derive(Debug, PartialEq)]
struct Bound {
    account: Object,
    pod: Option<Object>,
    end: f64,
}

/// A token that needs no review now.
pub(super) struct Stands {
    pub user: Arc<UserInfo>,
    pub until: Instant,
    pub on: Arc<[There]>,
}

#[derive(Deserialize)]
struct Claims {
    exp: f64,
    #[serde(rename = "kubernetes.io")]
    bindings: Bindings,
}

/// With a member that is not known, the token may be bound to more.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bindings {
    namespace: Box<str>,
    serviceaccount: Named,
    pod: Option<Named>,
    /// Beside a pod, it is that pod's node.
    node: Option<IgnoredAny>,
    secret: Option<IgnoredAny>,
    #[serde(rename = "warnafter")]
    _warn_after: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Named {
    name: Box<str>,
    uid: Box<str>,
}

// === impl Standing ===

impl Standing {
    pub(super) fn new(reviews: Arc<Reviews>, revoked: Arc<Revoked>, pod_watches: Option<Arc<PodWatches>>) -> Self {
        let lifetime = EndsAt::<Arc<Accepted>>(|accepted| accepted.until);
        Self {
            reviews,
            revoked,
            pod_watches,
            accepted: Cache::builder().max_capacity(MAX_TOKENS).time_to_idle(IDLE).expire_after(lifetime).build(),
            in_vain: Cache::builder().max_capacity(MAX_TOKENS).time_to_live(IN_VAIN).build(),
        }
    }

    /// Changes when every token has to be reviewed again: the apiserver may have been restarted. `None` while that would not be seen.
    pub(super) fn losses(&self) -> Option<u64> {
        self.revoked.accounts.losses()
    }

    /// Records that a review has accepted the token as this user's. It was asked for at this time, after so many losses.
    pub(super) async fn accept(
        &self,
        hash: [u8; 32],
        token: &str,
        user: &Arc<UserInfo>,
        (asked, losses): (Instant, Option<u64>),
    ) {
        let Some(losses) = losses else { return };
        let Some((bound, time)) = Bound::of(token, user).zip(self.reviews.time().zip(now())) else { return };
        let left = Duration::try_from_secs_f64(bound.end - time.0.max(time.1)).unwrap_or_default();
        let until = asked + left.min(LONGEST);
        self.accepted.insert(hash, Arc::new(Accepted { user: Arc::clone(user), bound, until, losses })).await;
    }

    /// Takes back what [`Self::accept`] has recorded.
    pub(super) async fn forget(&self, hash: &[u8; 32]) {
        self.accepted.invalidate(hash).await;
    }

    /// Whether a token stands that was reviewed before. Sends a request only for objects that were not looked up yet.
    pub(super) async fn again(&self, hash: &[u8; 32]) -> Option<Stands> {
        let accepted = self.accepted.get(hash).await?;
        let Accepted { user, bound: Bound { account, pod, end }, until, losses } = &*accepted;
        // Without the watch of accounts, none of the pod is begun, nor is one of a pod that was deleted.
        if Some(*losses) != self.losses() || Instant::now() >= *until || now()? >= *end || self.revoked.covers(user) {
            return None;
        }
        let mut watches = vec![(Arc::clone(&self.revoked.accounts), account)];
        if let Some(pod) = pod {
            let watch = match &self.pod_watches {
                Some(watches) => watches.of(pod)?,
                None => Arc::clone(&self.revoked.pods),
            };
            watches.push((watch, pod));
        }
        if !watches.iter().all(|(watch, _)| watch.is_open()) {
            return None;
        }
        let mut on = Vec::with_capacity(watches.len());
        for (watch, object) in watches {
            // One look-up for all of its tokens. Only that it is in vain is remembered here.
            let found = async {
                match watch.find(&self.reviews, object).await {
                    Ok(None) => Ok(()),
                    found => Err(found.ok().flatten()),
                }
            };
            let there = self.in_vain.try_get_with(object.uid.clone(), found).await.err()?;
            on.push((*there).clone()?);
        }
        Some(Stands { user: Arc::clone(user), until: *until, on: on.into() })
    }
}

// === impl Bound ===

impl Bound {
    fn of(token: &str, user: &UserInfo) -> Option<Self> {
        let Claims { exp, bindings: Bindings { namespace, serviceaccount, pod, node, secret, .. } } = claims(token)?;
        let is_of_pod = (user.extra(POD_NAME), user.extra(POD_UID))
            == (pod.as_ref().map(|pod| &*pod.name), pod.as_ref().map(|pod| &*pod.uid));
        let is_the_users = user.username == format!("system:serviceaccount:{namespace}:{}", serviceaccount.name)
            && *user.uid == *serviceaccount.uid
            && !user.uid.is_empty();
        if !is_of_pod || !is_the_users || secret.is_some() || node.is_some() && pod.is_none() {
            return None;
        }
        let object = |resource, Named { name, uid }| Object { resource, namespace: namespace.clone(), name, uid };
        let (account, pod) = (object("serviceaccounts", serviceaccount), pod.map(|pod| object("pods", pod)));
        Some(Self { account, pod, end: exp })
    }
}

#[cfg(test)]
#[path = "standing_tests.rs"]
mod tests;
