use crate::auth::AuthConfig;
use crate::auth::access::{Access, Verdict};
use crate::auth::testing::{Rights, bearer, caller, judged_by, right, watch_of};

use super::*;

async fn lease(access: &Access, user: &str, namespaces: &[&str]) -> Lease {
    let wanted: Vec<_> = namespaces.iter().map(|namespace| watch_of(namespace)).collect();
    let (verdict, _) = access.check_all(&caller(&bearer(user)), &wanted, true).await;
    let Verdict::Allowed(grant) = verdict else { panic!("{user}: {verdict:?}") };
    grant.lease()
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it comes")
}

#[tokio::test]
async fn after_a_change_of_rights_exactly_the_leases_end_whose_right_is_gone() {
    let rights = Arc::<Rights>::default();
    rights.given.lock().extend([right("jane", "a"), right("jane", "b"), right("joe", "b"), right("joe", "")]);
    let (access, _server) = judged_by(&rights, &AuthConfig::default()).await;
    let mut stay = [
        lease(&access, "jane", &["a"]).await,
        lease(&access, "joe", &["b"]).await,
        lease(&access, "joe", &[""]).await,
        Lease::all([]),
    ];
    let go = [lease(&access, "jane", &["b"]).await, lease(&access, "jane", &["a", "b"]).await];
    let bound = lease(&access, "jane", &["a"]).await.bound_by(std::future::ready(Box::new(errors::unauthorized())));
    assert_eq!(within(bound.gone()).await.code, 401, "it ends with something else");

    rights.given.lock().remove(&right("jane", "b"));
    rights.asked.lock().clear();
    access.delegated.as_ref().unwrap().generations.change("b");
    for lease in go {
        assert_eq!(within(lease.gone()).await.code, 403);
    }
    within(async {
        while !rights.asked.lock().contains(&right("joe", "b")) {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for (at, lease) in stay.iter_mut().enumerate() {
        let stays = std::future::poll_fn(|cx| Poll::Ready(lease.poll_gone(cx).is_pending())).await;
        assert!(stays, "{at}");
    }
    assert_eq!(access.metrics().streams_revoked.get(), 2);
    drop(stay);
    within(async {
        while access.metrics().rights_held.get() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_right_that_cannot_be_checked_ends_soon_after_a_change_and_else_with_its_decision() {
    let (second, config) = (Duration::from_secs(1), AuthConfig::default());
    for (is_changed, life) in [(true, DOUBT), (false, config.allow_ttl)] {
        let rights = Arc::<Rights>::default();
        rights.given.lock().insert(right("jane", "a"));
        let config = AuthConfig { review_timeout: second, token_ttl: 2 * config.allow_ttl, ..config.clone() };
        let (access, _server) = judged_by(&rights, &config).await;
        let generations = &access.delegated.as_ref().unwrap().generations;
        generations.set_watched(true);
        let (begun, lease) = (Instant::now(), lease(&access, "jane", &["a"]).await);
        rights.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
        tokio::time::pause();
        if is_changed {
            generations.change("a");
        }
        assert_eq!(lease.gone().await.code, 503);
        let lived = begun.elapsed();
        assert!((life..life + 60 * second).contains(&lived), "{lived:?}");
        assert_eq!(access.metrics().streams_revoked.get(), 1);
        tokio::time::resume();
    }
}
