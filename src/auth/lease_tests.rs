use crate::apiserver::metadata::Seen;
use crate::apiserver::testing::until;
use crate::auth::AuthConfig;
use crate::auth::access::Access;
use crate::auth::bearer::Secret;
use crate::auth::rbac_generations::RbacGenerations;
use crate::auth::testing::{allowing, bearer, caller, change, long, right, watch_of};
use crate::auth::verdict::Verdict;

use super::*;

async fn lease(access: &Access, user: &str, namespaces: &[&str]) -> Lease {
    lease_of(access, user, namespaces, true).await
}

/// `lasts`: as a stream, or else as a list that is being sent.
async fn lease_of(access: &Access, user: &str, namespaces: &[&str], lasts: bool) -> Lease {
    let wanted: Vec<_> = namespaces.iter().map(|namespace| watch_of(namespace)).collect();
    let (verdict, _) = access.check_all(&caller(&bearer(user)), &wanted, lasts).await;
    let Verdict::Allowed(grant) = verdict else { panic!("{user}: {verdict:?}") };
    grant.lease()
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it comes")
}

fn code(status: Option<Box<Status>>) -> Option<u16> {
    status.map(|status| status.code)
}

async fn is_open(lease: &mut Lease) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(lease.poll_gone(cx).is_pending())).await
}

#[tokio::test]
async fn after_a_change_of_rights_exactly_the_leases_end_whose_right_is_gone() {
    // Some authorizers are behind, and the change is seen as it settles.
    for tell in [RbacGenerations::change, RbacGenerations::settle] {
        let given = [("jane", "a"), ("jane", "b"), ("joe", "b"), ("joe", "")];
        let (rights, access, _server) = allowing(&given, &long()).await;
        let generations = &access.delegated.as_ref().unwrap().generations;
        generations.set_watched(true);
        let mut stay = [
            lease(&access, "jane", &["a"]).await,
            lease(&access, "joe", &["b"]).await,
            lease(&access, "joe", &[""]).await,
            Lease::all([]),
        ];
        let go = [lease(&access, "jane", &["b"]).await, lease(&access, "jane", &["a", "b"]).await];
        let bound = lease(&access, "jane", &["a"]).await.bound_by(std::future::ready(Box::new(errors::unauthorized())));
        assert_eq!(code(within(bound.gone()).await), Some(401), "it ends with something else");

        rights.given.lock().remove(&right("jane", "b"));
        rights.asked.lock().clear();
        // Rights of others change all the time.
        tell(generations, "elsewhere");
        sleep(Duration::from_millis(1)).await;
        tell(generations, "b");
        for lease in go {
            assert_eq!(code(within(lease.gone()).await), Some(403));
        }
        until(|| rights.asked.lock().contains(&right("joe", "b"))).await;
        for (at, lease) in stay.iter_mut().enumerate() {
            assert!(is_open(lease).await, "{at}");
        }
        assert_eq!(access.metrics().streams_revoked.get(), 2);
        drop(stay);
        until(|| access.metrics().rights_held.get() == 0).await;
    }
}

#[tokio::test]
async fn a_stream_is_charged_for_what_it_rests_on_now() {
    let (rights, access, _server) = allowing(&[("jane", ""), ("joe", "")], &long()).await;
    let jane = |group| serde_json::json!({"authenticated": true, "user": {"username": "jane", "groups": [group]}});
    rights.tokens.lock().extend([("one", jane("x")), ("two", jane("y"))]);
    let delegated = access.delegated.as_ref().unwrap();
    delegated.generations.set_watched(true);
    let held = || access.metrics().rights_held.get();
    let mut first = lease(&access, "one", &["a", "b"]).await;
    let mut list = lease_of(&access, "joe", &["a", "b"], false).await;
    assert_eq!(held(), 1, "the right to all namespaces, and nothing for a list");
    let narrow = ["jane", "joe"].map(|user| ["a", "b"].map(|namespace| right(user, namespace)));
    *rights.given.lock() = narrow.into_iter().flatten().collect();
    rights.asked.lock().clear();
    change(&access, "");
    until(|| held() == 2 && rights.asked.lock().contains(&right("joe", "b"))).await;
    // The token is of another group from now on.
    rights.tokens.lock().insert("one", jane("y"));
    let reviews = access.metrics().token_reviews.get();
    delegated.revoked.tell(&Seen::Restarted(Vec::new()), &delegated.generations);
    rights.asked.lock().clear();
    until(|| access.metrics().token_reviews.get() > reviews && rights.asked.lock().contains(&right("jane", "b"))).await;
    let mut second = lease(&access, "two", &["a", "b"]).await;
    until(|| held() == 2).await;
    for lease in [&mut first, &mut list, &mut second] {
        assert!(is_open(lease).await);
    }
}

#[tokio::test]
async fn a_right_that_cannot_be_checked_ends_soon_after_a_change_and_else_with_its_decision() {
    let (second, config) = (Duration::from_secs(1), AuthConfig::default());
    let ttl = config.allow_ttl;
    let pass = async |time| {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    };
    for (is_renewed, is_changed, life) in [(false, true, DOUBT), (true, true, DOUBT), (false, false, ttl)] {
        let config = AuthConfig { review_timeout: second, token_ttl: 2 * ttl, ..config.clone() };
        let (rights, access, _server) = allowing(&[("jane", "a")], &config).await;
        access.delegated.as_ref().unwrap().generations.set_watched(true);
        let (mut begun, lease) = (Instant::now(), lease(&access, "jane", &["a"]).await);
        if is_renewed {
            // So the first decision is over before the apiserver is gone, and the second one is not.
            pass(ttl / 2).await;
            change(&access, "a");
            until(|| rights.asked.lock().len() == 2 && access.metrics().reviews_running.get() == 0).await;
            pass(ttl * 3 / 4).await;
            begun = Instant::now();
        }
        rights.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
        tokio::time::pause();
        if is_changed {
            change(&access, "a");
        }
        assert_eq!(lease.gone().await, None, "nobody says that the right is gone");
        let lived = begun.elapsed();
        assert!((life..life + 60 * second).contains(&lived), "{lived:?}");
        let metrics = access.metrics();
        assert_eq!((metrics.streams_unconfirmed.get(), metrics.streams_revoked.get()), (1, 0));
        tokio::time::resume();
    }
}

/// The apiserver is back, and has no answer to the reviews.
#[tokio::test]
async fn what_was_kept_has_to_be_confirmed_soon() {
    let (second, config) = (Duration::from_secs(1), AuthConfig::default());
    let next = 7 * second;
    for (is_kept, life) in [(false, config.allow_ttl), (true, next + DOUBT)] {
        let config = AuthConfig { review_timeout: second, ..config.clone() };
        let (rights, access, _server) = allowing(&[("jane", "a")], &config).await;
        access.delegated.as_ref().unwrap().generations.set_watched(true);
        let begun = Instant::now();
        let (verdict, _) = access.check_all(&caller(&bearer("jane")), &[watch_of("a")], true).await;
        let Verdict::Allowed(mut grant) = verdict else { panic!("{verdict:?}") };
        rights.is_down.store(true, std::sync::atomic::Ordering::Relaxed);
        tokio::time::pause();
        // The token is one that nothing is remembered of.
        let held = &mut grant.held[0];
        held.source = Source::Token(Secret::new("other"));
        held.known = Known { until: Instant::now() + next, kept: is_kept, ..held.known.clone() };
        assert_eq!(grant.is_kept(), is_kept);
        assert_eq!(grant.lease().gone().await, None);
        let lived = begun.elapsed();
        assert!((life..life + 60 * second).contains(&lived), "{is_kept}: {lived:?}");
        tokio::time::resume();
    }
}

/// The end of its token may have been missed, and there is nobody to ask.
#[tokio::test]
async fn what_is_not_kept_ends_soon_while_others_are() {
    let (_rights, access, _server) = allowing(&[("jane", "a")], &long()).await;
    let delegated = access.delegated.as_ref().unwrap();
    delegated.generations.set_watched(true);
    let lease = lease(&access, "jane", &["a"]).await;
    tokio::time::pause();
    let begun = Instant::now();
    delegated.outage.begin(begun);
    delegated.revoked.tell(&Seen::Restarted(Vec::new()), &delegated.generations);
    assert_eq!(lease.gone().await, None);
    let lived = begun.elapsed();
    assert!((DOUBT..2 * DOUBT).contains(&lived), "{lived:?}");
}
