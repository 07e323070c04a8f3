//! What counts while nobody can be asked. While nothing is where the apiserver should be, no review is sent, and what was accepted or
//! allowed last counts for a bounded time: whoever cuts informerd off from the apiserver sees nothing new, because no event comes
//! either. An apiserver that answers, with whatever, is not away.
//!
//! When the apiserver is back, it may answer reviews before it knows accounts and rights, and would deny everybody. So reviews are
//! held until it is ready and the watches for changes have gone on, for [`SETTLING`] at most.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use parking_lot::Mutex;
use rand::Rng as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::claims::now;
use super::config::AuthConfig;
use super::metrics::AuthMetrics;
use super::settling::BLIND;
use crate::apiserver::RequestVerb;
use crate::apiserver::client::{CallOptions, Identity, Upstream, empty};

/// An outage of the apiserver, as far as decisions depend on it.
pub(super) struct Outage {
    upstream: Upstream,
    /// For how long something that was accepted or allowed counts without a review. Zero: not at all.
    max_age: Duration,
    /// Until this long after the clock jumped, something may be remembered from before.
    remembered: Duration,
    /// Whether other replicas reach the apiserver: then it is this one that is cut off.
    others: watch::Receiver<bool>,
    on: watch::Sender<bool>,
    state: Mutex<State>,
    metrics: Arc<AuthMetrics>,
}

#[derive(Debug, Default)]
struct State {
    /// When something last came from the apiserver, while an outage lasts.
    since: Option<Instant>,
    ended: Option<Instant>,
    /// When both clocks were last looked at, and the time in seconds since 1970.
    looked: Option<(Instant, f64)>,
    /// How much longer the machine's clock says that it was. The machine slept, or the clock was set.
    slept: Duration,
    jumped: Option<Instant>,
}

/// What has happened since the start of an outage.
struct Counted {
    held: u64,
    kept: u64,
    unconfirmed: u64,
}

/// How long what is kept is used before it is looked up again, at least and at most: nothing is due at one moment.
const LIFE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));
/// How long a kept decision still holds for an open stream if its review fails.
const DOUBT: Duration = Duration::from_secs(10);
/// How long reviews are held after something has answered again, at most, and how often it is asked whether they still have to be.
const SETTLING: Duration = Duration::from_secs(15);
const ASK: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_secs(3);
/// How long after an outage nothing is forwarded only because its review fails.
const RECENT: Duration = Duration::from_secs(15);
/// How often the clocks are compared, and from which difference on they count.
const LOOK: Duration = Duration::from_secs(2);
const JUMP: Duration = Duration::from_secs(1);
/// How often it is looked again whether changes of rights are seen.
const LATER: Duration = Duration::from_secs(1);

// === impl Outage ===

impl Outage {
    pub(super) fn new(
        upstream: Upstream,
        config: &AuthConfig,
        others: watch::Receiver<bool>,
        metrics: Arc<AuthMetrics>,
    ) -> Self {
        let max_age = config.max_away_age;
        let remembered = max_age.saturating_add(config.token_ttl.max(config.allow_ttl));
        let (on, state) = (watch::Sender::new(false), Mutex::default());
        Self { upstream, max_age, remembered, others, on, state, metrics }
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Whether no review is sent.
    pub(super) fn is_on(&self) -> bool {
        *self.on.borrow()
    }

    /// Waits until no review is sent.
    pub(super) async fn begins(&self) {
        // The sender is owned by this.
        self.on.subscribe().wait_for(|on| *on).await.ok();
    }

    /// Until when something may be used that was valid until then by the usual rules.
    pub(super) fn keeps(&self, until: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        state.look(now(), self.remembered);
        let since = state.since.filter(|_| self.may_keep())?;
        let left = self.max_age.checked_sub(state.slept)?;
        Some(until.min(since) + left).filter(|end| *end > Instant::now())
    }

    /// When something is looked up again that was valid until then by the usual rules and is used now, and until when it may be used
    /// if that fails. All ends shortly before the bound, but not in the same instant.
    pub(super) fn uses(&self, until: Instant) -> Option<(Instant, Instant)> {
        let bound = self.keeps(until)?;
        let (shortest, longest) = LIFE;
        let again = Instant::now() + rand::rng().random_range(shortest..=longest);
        (again <= bound).then(|| (again, bound.min(again + DOUBT)))
    }

    /// Whether there is an outage, or one has ended a moment ago.
    pub(super) fn is_recent(&self) -> bool {
        self.is_on() || self.state.lock().ended.is_some_and(|ended| ended.elapsed() < RECENT)
    }

    /// While changes of rights cannot be seen because of the outage: when to look again. `None` if decisions are to be dropped.
    pub(super) fn sees_later(&self) -> Option<Instant> {
        let now = Instant::now();
        if self.is_on() {
            // What was valid when the outage began is kept the longest.
            return self.keeps(now).map(|_| now + LATER);
        }
        let ended = self.state.lock().ended?;
        Some(ended + BLIND).filter(|at| self.may_keep() && *at > now)
    }

    fn may_keep(&self) -> bool {
        !self.max_age.is_zero() && !*self.others.borrow()
    }

    /// Follows the state of the client, forever. `rights_seen`: whether the watches for changes of rights and accounts are open, or
    /// refused.
    pub(super) async fn run(self: Arc<Self>, rights_seen: impl Fn() -> bool) {
        loop {
            self.look();
            tokio::select! {
                () = self.upstream.gone() => {}
                () = sleep(LOOK) => continue,
            }
            let Some(away) = self.upstream.away() else { continue };
            let (begun, before) = (Instant::now(), self.counted());
            self.begin(away.since);
            loop {
                self.while_looking(self.upstream.back()).await;
                let is_ready = self.while_looking(self.settles(&rights_seen));
                tokio::select! {
                    // Nothing was confirmed meanwhile, so it is the same outage.
                    () = self.upstream.gone() => {}
                    () = is_ready => break,
                }
            }
            self.end();
            let Counted { held, kept, unconfirmed } = self.counted();
            tracing::info!(
                seconds = begun.elapsed().as_secs(),
                reviews_held = held.saturating_sub(before.held),
                reads_kept = kept.saturating_sub(before.kept),
                streams_ended = unconfirmed.saturating_sub(before.unconfirmed),
                "the apiserver is back: access is reviewed again"
            );
        }
    }

    pub(super) fn begin(&self, since: Instant) {
        self.state.lock().since = Some(since);
        self.on.send_replace(true);
        self.look();
        let keeps = self.metrics.keeps.get() == 1;
        tracing::warn!(
            keeps,
            max_age = ?self.max_age,
            "the apiserver is away: no access is reviewed, and with keeps=true what it has allowed stays allowed for max_age"
        );
    }

    pub(super) fn end(&self) {
        {
            let mut state = self.state.lock();
            (state.since, state.ended) = (None, Some(Instant::now()));
        }
        self.on.send_replace(false);
        self.metrics.keeps.set(0);
    }

    /// Compares the clocks, and tells whether anything is kept.
    fn look(&self) {
        let keeps = self.keeps(Instant::now()).is_some();
        self.metrics.keeps.set(keeps.into());
    }

    async fn while_looking(&self, awaited: impl Future<Output = ()>) {
        let mut awaited = std::pin::pin!(awaited);
        while timeout(LOOK, &mut awaited).await.is_err() {
            self.look();
        }
    }

    /// Waits until the apiserver can be asked, for a bounded time.
    async fn settles(&self, rights_seen: &impl Fn() -> bool) {
        let settled = async {
            while !(rights_seen() && self.is_ready().await) {
                sleep(ASK).await;
            }
        };
        timeout(SETTLING, settled).await.ok();
    }

    async fn is_ready(&self) -> bool {
        let Ok(request) = Request::get("/readyz").body(empty()) else { return true };
        let options = CallOptions::new(RequestVerb::Probe, "").header_timeout(ANSWER);
        let answer = self.upstream.send_with(Identity::Own, request, &options).await;
        answer.is_ok_and(|answer| {
            let status = answer.status();
            !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
        })
    }

    fn counted(&self) -> Counted {
        let AuthMetrics { reviews_held, kept, streams_unconfirmed, .. } = &*self.metrics;
        Counted { held: reviews_held.get(), kept: kept.get(), unconfirmed: streams_unconfirmed.get() }
    }
}

// === impl State ===

impl State {
    /// Takes the machine's clock, in seconds since 1970, beside the one that nobody sets.
    fn look(&mut self, time: Option<f64>, remembered: Duration) {
        let (now, Some(time)) = (Instant::now(), time) else { return };
        if let Some((then, before)) = self.looked {
            let passed = now.saturating_duration_since(then);
            let jump = Duration::try_from_secs_f64(time - before).unwrap_or_default().saturating_sub(passed);
            if jump >= JUMP {
                (self.slept, self.jumped) = (self.slept.saturating_add(jump), Some(now));
            }
        }
        if self.jumped.is_some_and(|jumped| now.saturating_duration_since(jumped) > remembered) {
            (self.slept, self.jumped) = (Duration::ZERO, None);
        }
        self.looked = Some((now, time));
    }
}

#[cfg(test)]
#[path = "outage_tests.rs"]
mod tests;
