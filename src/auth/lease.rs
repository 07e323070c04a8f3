//! The lease of an open stream. It checks the right to the stream again whenever rights change, when a decision
//! expires, and when the credentials do. The apiserver itself checks only once, when a watch begins.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rand::Rng;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::authenticator::{Known, Source};
use super::authorizer::{Asking, Decision, Memory};
use super::cover::{Cover, Proof};
use super::delegated::Delegated;
use super::review::Unavailable;
use super::shares::Share;
use super::user::UserInfo;
use crate::lifecycle::spawn;
use crate::meta::{Status, errors};

/// Changes come in bursts, and all streams see them at once. So their checks are spread over this time.
const SPREAD: Duration = Duration::from_millis(200);
/// How long after a change of rights a stream stays open if the right to it cannot be checked. So long is also waited for
/// the review of a token that was kept without one while the apiserver was away, and for one that is not kept although others are.
const DOUBT: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
/// The shortest time between two checks.
const SHORTEST: Duration = Duration::from_millis(50);

/// Reports when the right is lost, and the Status for the client. There is none if nobody can say whether the right is
/// still there: the stream ends then, without an error. The right of a trusted client is never lost. A task checks it
/// even while the lease is not polled: a stream whose client read nothing for an hour sees the loss before anything else.
#[must_use = "a stream without its lease lives on when the right to it is gone"]
pub struct Lease {
    ends: Box<[End]>,
}

/// Why a stream has to end.
enum End {
    /// A right is gone: the end of the task that checks it again.
    Gone(AbortOnDropHandle<Option<Box<Status>>>),
    /// The stream must end although the rights are still there.
    Bound(Pin<Box<dyn Future<Output = Option<Box<Status>>> + Send>>),
}

/// What an open stream depends on.
pub(super) struct Held {
    pub access: Arc<Delegated>,
    pub source: Source,
    pub known: Known,
    pub user: Arc<UserInfo>,
    /// The right belongs to this impersonated user. The user's right to impersonate is held separately.
    pub impersonated: Option<Arc<UserInfo>>,
    pub proof: Proof,
    /// The user's share. Set only for streams.
    pub share: Option<Share>,
}

// === impl Lease ===

impl Lease {
    pub(super) fn of(held: Held) -> Self {
        Self { ends: Box::new([End::Gone(AbortOnDropHandle::new(spawn("lease", held.until_gone())))]) }
    }

    /// A lease that the test ends. Without a Status if it drops the sender.
    #[cfg(test)]
    pub(crate) fn until(gone: tokio::sync::oneshot::Receiver<Box<Status>>) -> Self {
        Self { ends: Box::new([End::Bound(Box::pin(async { gone.await.ok() }))]) }
    }

    /// Combines several rights that are needed together. If one is lost, all end. Without any right, the lease never
    /// ends.
    pub fn all(leases: impl IntoIterator<Item = Self>) -> Self {
        Self { ends: leases.into_iter().flat_map(|lease| lease.ends).collect() }
    }

    /// Also ends with this future, with its Status.
    pub fn bound_by(self, end: impl Future<Output = Box<Status>> + Send + 'static) -> Self {
        let end = async move { Some(end.await) };
        Self { ends: self.ends.into_iter().chain([End::Bound(Box::pin(end))]).collect() }
    }

    /// Waits until the right is lost.
    pub(super) async fn gone(mut self) -> Option<Box<Status>> {
        std::future::poll_fn(|cx| self.poll_gone(cx)).await
    }

    /// Whether the right is lost. `None`: nobody can say whether it is still there. Must not be polled again after that.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Option<Box<Status>>> {
        for end in &mut self.ends {
            // Without the budget of the task: a task that has used it up would not see the loss before its next event.
            let status = match end {
                // If the task is gone, nobody looks after the right any more.
                End::Gone(task) => Pin::new(&mut unconstrained(task)).poll(cx).map(Result::unwrap_or_default),
                End::Bound(end) => Pin::new(&mut unconstrained(end.as_mut())).poll(cx),
            };
            if status.is_ready() {
                return status;
            }
        }
        Poll::Pending
    }
}

// === impl Held ===

impl Held {
    /// Whether the right rests on something that was kept because the apiserver is away.
    pub(super) fn is_kept(&self) -> bool {
        self.known.kept || self.proof.decisions().any(|(_, decision)| decision.kept)
    }

    pub(super) async fn until_gone(mut self) -> Option<Box<Status>> {
        let mut changes = self.access.generations.changes();
        let mut known_until = self.known_until();
        // What is kept for many streams ends at one moment. They end one after another before it, and not all at once.
        let early = DOUBT.mul_f64(rand::rng().random::<f64>());
        let mut not_before = Instant::now();
        let mut is_of_others = false;
        loop {
            let (changed, settled) = self.outdated();
            if !changed && !settled && std::mem::take(&mut is_of_others) {
                // Whoever may change roles in one namespace does not keep the streams of all others busy.
                sleep(spread()).await;
                continue;
            }
            if !changed && !settled {
                let again = earliest(&self.proof, |decision| decision.again);
                let next = self.known.until.min(again).max(not_before);
                tokio::select! {
                    _ = changes.changed() => {
                        is_of_others = true;
                        continue;
                    }
                    () = sleep_until(next) => {}
                }
            } else {
                // Changes that come together are checked once.
                sleep(spread()).await;
            }
            is_of_others = false;
            changes.mark_unchanged();
            // Boxed: it takes some kilobytes, and each open stream waits here without it.
            match Box::pin(self.ask()).await {
                Ok(None) => {
                    known_until = self.known_until();
                    not_before = Instant::now() + SHORTEST;
                }
                Ok(Some(status)) => {
                    self.access.metrics.streams_revoked.inc();
                    tracing::info!(
                        user = self.user.username,
                        code = status.code,
                        "the right to an open stream is gone"
                    );
                    return Some(status);
                }
                Err(error) => {
                    let (is_away, is_kept) = (error == Unavailable::Away, self.is_kept());
                    // Others are kept, and this is not: its token was refused, or its end may have been missed.
                    let is_left_out = is_away && !is_kept && self.access.outage.keeps(Instant::now()).is_some();
                    if changed || is_left_out {
                        known_until = known_until.min(Instant::now() + DOUBT);
                    }
                    let early = if !changed && is_kept && is_away { early } else { Duration::ZERO };
                    if Instant::now() + early >= known_until {
                        self.access.metrics.streams_unconfirmed.inc();
                        return None;
                    }
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// If no new decision can be made, nothing is known beyond this time. If the review of the token was kept and cannot be
    /// used any longer, its end does not wait for that of a decision that was made before.
    fn known_until(&self) -> Instant {
        let until = earliest(&self.proof, |decision| decision.until);
        if self.known.kept { until.min(self.known.until + DOUBT) } else { until }
    }

    /// Decides again. Returns the Status for the client if the right is gone.
    async fn ask(&mut self) -> Result<Option<Box<Status>>, Unavailable> {
        let known = self.access.authenticator.again(&self.source).await?;
        let Some(user) = known.user.clone() else { return Ok(Some(Box::new(errors::unauthorized()))) };
        let subject = self.impersonated.as_ref().unwrap_or(&user);
        let asking = Asking { payer: None, memory: Memory::Good };
        let authorizer = &self.access.authorizer;
        let proof = match authorizer.cover_again(subject, &self.proof, asking).await? {
            Cover::All(proof) => proof,
            Cover::Denied { access, decision, .. } => {
                return Ok(Some(Box::new(access.forbidden(&subject.username, &decision.reason))));
            }
        };
        let is_same = user == self.user && proof.questions() == self.proof.questions();
        if let Some(before) = self.share.as_mut().filter(|_| !is_same) {
            let mut share = authorizer.hold(&user, subject, proof.questions(), 0)?;
            share.succeed(before);
            *before = share;
        }
        (self.known, self.user, self.proof) = (known, user, proof);
        Ok(None)
    }

    /// Whether rights have changed since the decisions, and whether it is time to ask again for another reason: they have
    /// settled further, or the end of the credentials may have been missed.
    fn outdated(&self) -> (bool, bool) {
        let changed = self.access.revoked.covers(&self.user);
        let (mut changed, mut settled) = (changed, self.access.authenticator.is_outdated(&self.source, &self.known));
        for (question, decision) in self.proof.decisions() {
            let now = self.access.generations.of(&question.namespace);
            changed |= now.change != decision.generation.change;
            settled |= now.settle != decision.generation.settle;
        }
        (changed, settled)
    }
}

pub(super) fn spread() -> Duration {
    SPREAD.mul_f64(rand::rng().random::<f64>())
}

fn earliest(proof: &Proof, of: impl Fn(&Decision) -> Instant) -> Instant {
    proof.decisions().map(|(_, decision)| of(decision)).min().unwrap_or_else(Instant::now)
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
