//! Limits how long a watch that the apiserver answers through informerd may go on. The apiserver authorizes it once,
//! when it begins, and does not check again. So informerd checks it as it checks its own watches.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::coop::unconstrained;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::access::Access;
use super::attributes::Attributes;
use super::authorizer::Memory;
use super::caller::{Caller, Mode};
use super::credentials::credentials;
use super::delegated::Delegated;
use super::lease::spread;
use super::rbac_generations::Generation;
use super::verdict::Verdict;
use crate::lifecycle::spawn;
use crate::meta::Status;

/// After this time a change of rights has reached most authorizers. For those that are further behind, the watch ends
/// again whenever the rights settle.
const SETTLED: Duration = Duration::from_secs(5);

/// Tells when a forwarded watch has to end. Dropping it stops the checks.
#[must_use = "a forwarded watch without its term lives on when the right to it is gone"]
pub struct Term {
    over: AbortOnDropHandle<Option<Box<Status>>>,
    /// Reports that the apiserver has let the watch begin.
    begun: Option<oneshot::Sender<()>>,
}

// === impl Access ===

impl Access {
    /// How long a watch that is forwarded with its client's own credentials may go on. To be called before it is
    /// forwarded. `None` for trusted clients.
    pub fn term(&self, caller: &Caller<'_>, attributes: Attributes) -> Option<Term> {
        match (caller.mode, &self.delegated) {
            (Mode::Delegated, Some(delegated)) => Some(Term::new(Arc::clone(delegated), caller, attributes)),
            _ => None,
        }
    }
}

// === impl Term ===

impl Term {
    fn new(access: Arc<Delegated>, caller: &Caller<'_>, attributes: Attributes) -> Self {
        let Caller { mode, may_impersonate, .. } = *caller;
        // The head itself is dropped once it is forwarded.
        let (certificates, headers) = (caller.certificates.cloned(), credentials(caller.headers, may_impersonate));
        let (begun, has_begun) = oneshot::channel();
        // Taken before the apiserver decides, so that changes in the meantime count.
        let (changes, generation) = (access.generations.changes(), access.generations.of(&attributes.namespace));
        let over = spawn("term", async move {
            let wanted = [Arc::new(attributes)];
            let caller = Caller { mode, certificates: certificates.as_ref(), headers: &headers, may_impersonate };
            let (mut verdict, _) = access.ask(&caller, &wanted, Memory::Good, true).await;
            if let Verdict::Refused { subject: Some(_), .. } = verdict {
                // The apiserver decides at the same time. If it lets the watch begin, a right was granted or lost in
                // between. A decision after that shows which.
                if has_begun.await.is_err() {
                    return None;
                }
                (verdict, _) = access.ask(&caller, &wanted, Memory::Doubtful, true).await;
            }
            match verdict {
                Verdict::Allowed(grant) => grant.lease().gone().await,
                Verdict::Refused { status, subject: Some(_) } => {
                    access.metrics.streams_revoked.inc();
                    Some(status)
                }
                Verdict::Refused { .. } | Verdict::Forward(_) => {
                    // A token that became invalid while the watch opened is no longer valid for the apiserver either.
                    let is_gone = matches!(&verdict, Verdict::Refused { status, .. } if status.code == 401);
                    let longest = access.authenticator.doubt().filter(|_| is_gone);
                    let longest = longest.unwrap_or(access.authorizer.allow_ttl);
                    access.until_asked_anew(&wanted[0], generation, changes, longest).await;
                    access.metrics.streams_revoked.inc();
                    None
                }
            }
        });
        Self { over: AbortOnDropHandle::new(over), begun: Some(begun) }
    }

    /// Reports that the apiserver has let the watch begin.
    pub fn begin(&mut self) {
        if let Some(begun) = self.begun.take() {
            begun.send(()).ok();
        }
    }

    /// Whether the watch has to end: with a Status for its client, or with `None` like a watch that times out, after
    /// which the client has to ask again: only the apiserver can say what it may read, or nobody can now. Must not be
    /// polled again after that.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Option<Box<Status>>> {
        // If the task is gone, the right counts as lost. As for a lease, the budget of the task does not matter.
        Pin::new(&mut unconstrained(&mut self.over)).poll(cx).map(Result::unwrap_or_default)
    }

    /// Waits for [`Self::poll_over`].
    pub async fn over(mut self) -> Option<Box<Status>> {
        std::future::poll_fn(|cx| self.poll_over(cx)).await
    }
}

// === impl Delegated ===

impl Delegated {
    /// Waits until the watch has to be authorized again. For watches that only the apiserver can authorize.
    async fn until_asked_anew(
        &self,
        attributes: &Attributes,
        generation: Generation,
        mut changes: watch::Receiver<()>,
        longest: Duration,
    ) {
        let changed = async {
            // As for a lease, changes in other namespaces are not looked at one by one.
            while self.generations.of(&attributes.namespace) == generation && changes.changed().await.is_ok() {
                sleep(spread()).await;
            }
            sleep(SETTLED).await;
        };
        tokio::select! {
            () = changed => {}
            () = sleep(longest) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::apiserver::testing::until;
    use crate::auth::AuthConfig;
    use crate::auth::testing::{allowing, bearer, caller, right, watch_of};

    #[tokio::test]
    async fn a_forwarded_watch_lasts_as_long_as_the_right_to_it() {
        let (rights, access, _server) = allowing(&[("jane", "a")], &AuthConfig::default()).await;
        let of = |user: &str, attributes: Attributes| access.term(&caller(&bearer(user)), attributes).unwrap();
        let in_a = Attributes::clone(&watch_of("a"));
        let (mut jane, mut joe) = (of("jane", in_a.clone()), of("joe", in_a.clone()));
        jane.begin();
        assert!(
            timeout(Duration::from_millis(50), std::future::poll_fn(|cx| joe.poll_over(cx))).await.is_err(),
            "the apiserver has not let it begin"
        );
        joe.begin();
        // A right that is granted while the watch begins.
        let mut amy = of("amy", in_a.clone());
        until(|| rights.asked.lock().contains(&right("amy", "a"))).await;
        rights.given.lock().insert(right("amy", "a"));
        amy.begin();
        let over = timeout(Duration::from_millis(50), std::future::poll_fn(|cx| amy.poll_over(cx))).await;
        assert!(over.is_err(), "{:?}", over.map(|status| status.map(|status| status.code)));
        let end = async |term: Term| timeout(Duration::from_secs(60), term.over()).await.expect("it ends");
        assert_eq!(end(joe).await.map(|status| status.code), Some(403));
        rights.given.lock().clear();
        let generations = &access.delegated.as_ref().unwrap().generations;
        generations.change("a");
        assert_eq!(end(jane).await.map(|status| status.code), Some(403));
        assert_eq!(end(amy).await.map(|status| status.code), Some(403));

        // What only the apiserver can judge is asked anew after a change.
        let unread = of("jane", Attributes { unread: true, ..in_a });
        tokio::time::pause();
        let changed = Instant::now();
        generations.change("a");
        assert_eq!(unread.over().await, None);
        assert!((SETTLED..2 * SETTLED).contains(&changed.elapsed()), "{:?}", changed.elapsed());
        assert_eq!(access.metrics().streams_revoked.get(), 4);
    }
}
