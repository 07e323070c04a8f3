//! Checks whether the pod that a token is bound to still exists. The apiserver accepts the token of a deleted pod for
//! up to ten more seconds, and its verdict is cached here. Together that would be too long.

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tokio::time::Instant;

use super::ends_at::EndsAt;
use super::review::{Reviews, Unavailable};
use super::user::{Object, UserInfo};

/// The most cached pods. The least used are evicted first.
const MAX_REMEMBERED: u64 = 65_536;
/// How long it is cached that the daemon may not read a pod.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// Reads single pods. So tokens that are not bound to a pod cost nothing, and no watch of all pods is needed.
pub(super) struct Pods {
    reviews: Arc<Reviews>,
    ttl: Duration,
    remembered: Cache<Object, Seen>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// `None`: it cannot be determined.
    pub there: Option<bool>,
    pub until: Instant,
}

// === impl Pods ===

impl Pods {
    /// `ttl`: how long a pod counts as existing after it was seen.
    pub(super) fn new(reviews: Arc<Reviews>, ttl: Duration) -> Self {
        let lifetime = EndsAt::<Seen>(|seen| seen.until);
        let remembered = Cache::builder().max_capacity(MAX_REMEMBERED).expire_after(lifetime).build();
        Self { reviews, ttl, remembered }
    }

    /// Whether the pod of this user's token exists; `None` for a token that is not bound to a pod. Questions for the
    /// same pod that wait at the same time share one request.
    ///
    /// # Errors
    /// It cannot be determined now.
    pub(super) async fn of(&self, user: &UserInfo) -> Result<Option<Seen>, Unavailable> {
        let Some(pod) = user.pod() else { return Ok(None) };
        let ask = async {
            let asked = Instant::now();
            let there = self.reviews.pod(&pod).await?;
            Ok(Seen { there, until: asked + if there.is_some() { self.ttl } else { FORBIDDEN } })
        };
        let seen = self.remembered.try_get_with(pod.clone(), ask).await;
        seen.map(Some).map_err(|error: Arc<Unavailable>| Unavailable::clone(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::client::Upstream;
    use crate::apiserver::metadata::ACCEPT_OBJECT;
    use crate::apiserver::testing::{FakeServer, answer};
    use crate::auth::config::AuthConfig;
    use crate::auth::testing::reviews_by;
    use crate::auth::user::{POD_NAME, POD_UID};

    #[tokio::test]
    async fn a_pod_is_there_if_the_apiserver_has_it_with_this_uid() {
        let (ttl, zero, account) = (Duration::from_secs(7), Duration::ZERO, "system:serviceaccount:a:b");
        let user = |username: &str, uid: &str| {
            let extra = [(POD_NAME, "p"), (POD_UID, uid)].map(|(key, value)| (key.to_owned(), vec![value.to_owned()]));
            UserInfo { username: username.to_owned(), extra: extra.into(), ..UserInfo::default() }
        };
        for (code, uid, ttl, there, life, requests) in [
            (200, "1", ttl, Some(Some(true)), ttl, 1),
            (200, "1", zero, Some(Some(true)), zero, 2),
            (200, "2", ttl, Some(Some(false)), ttl, 1),
            (404, "1", ttl, Some(Some(false)), ttl, 1),
            (403, "1", zero, Some(None), FORBIDDEN, 1),
            (500, "1", ttl, None, ttl, 2),
        ] {
            let pod = r#"{"metadata":{"uid":"1"}}"#;
            let server = FakeServer::plain(move |_, _| std::future::ready(answer(code, pod))).await;
            let upstream = Upstream::from_config(server.config()).await.unwrap();
            let pods = Pods::new(Arc::new(reviews_by(upstream, &AuthConfig::default(), &Arc::default())), ttl);
            assert_eq!(pods.remembered.policy().max_capacity(), Some(MAX_REMEMBERED));
            let asked = Instant::now();
            let seen = pods.of(&user(account, uid)).await.ok().flatten();
            assert_eq!(seen.map(|seen| seen.there), there, "{code} {uid}");
            let until = seen.map_or(asked + life, |seen| seen.until);
            assert!(asked + life <= until && until <= Instant::now() + life, "{code} {uid}");
            pods.of(&user(account, uid)).await.ok();
            for other in [user("jane", uid), user("system:serviceaccount:a", uid), UserInfo::default()] {
                assert!(pods.of(&other).await.unwrap().is_none(), "{other:?} is bound to no pod");
            }
            assert_eq!(server.uris(), vec!["/api/v1/namespaces/a/pods/p?resourceVersion=0"; requests], "{code} {uid}");
            assert_eq!(server.requests()[0].headers["accept"], ACCEPT_OBJECT);
        }
    }
}
