//! Checks of streams that stand still although the store has moved.
//!
//! A read that has waited in vain for its stream says so. Until the stream moves, the reads after it do not wait again:
//! they are forwarded. Meanwhile a check finds out whether the stream has missed something. If it has, it is opened
//! anew. A stream from which nothing at all came for longer than the apiserver's bookmarks take is checked as well.
//! [`super::owed`] has the changes of which no check is needed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::stall::{MOMENT, Why};
use super::{Factory, Informer};
use crate::lifecycle;
use crate::meta::{Gvr, ResourceVersion};
use crate::upstream::reflector::{Position, Silence};
use crate::upstream::silence::{Heard, Means, SILENT};

/// How often silent streams are looked for.
const LOOK: Duration = Duration::from_secs(5);
/// How long the next stream may take to be opened.
const OPENED: Duration = Duration::from_secs(30);
/// How long it may then take to deliver what the last one did not. The apiserver has it.
const DELIVERED: Duration = Duration::from_secs(3);
/// A stream that is open has a position of its own by then.
const BEGUN: Duration = Duration::from_millis(100);
/// Timeout of a check. Most of it is for the digest of a large collection.
const PATIENCE: Duration = Duration::from_secs(60);

// === impl Informer ===

impl Informer {
    /// Whether a read need not wait for the stream, because one has done so in vain and it has not moved since.
    pub fn is_stalled(&self) -> bool {
        self.stall.holds(self.cache.resource_version())
    }

    /// Records that a read has waited this long in vain while the stream stood at `at`. A short wait counts if the stream
    /// stands still for long, but not if the deadline of the read cut it: the client may have set it, and others may wait
    /// longer.
    pub(super) fn stands(self: &Arc<Self>, at: ResourceVersion, why: Why, waited: Duration, is_cut: bool) {
        if self.cache.resource_version() != at || at.is_zero() {
            return;
        }
        if !is_cut || waited >= MOMENT {
            self.stall.stands(at, why, waited);
        }
        self.check_stream(false, self.reflector.position(), MOMENT);
    }

    /// Records that a background proof has failed while the stream was at `at`, and stood at `stood`. Large collections
    /// are mostly proved in this way: their readers do not wait.
    pub(super) fn is_unproved(self: &Arc<Self>, at: Position, stood: ResourceVersion) {
        if self.reflector.position() == at && self.cache.resource_version() == stood {
            self.check_stream(false, at, Duration::ZERO);
        }
    }

    /// Checks in the background whether the stream has missed something, if it stays at `at` for so long.
    fn check_stream(self: &Arc<Self>, of_silent: bool, at: Position, stays: Duration) {
        let since = Instant::now();
        let Some(begin) = self.stall.begin(of_silent) else { return };
        let informer = Arc::clone(self);
        lifecycle::spawn("check-stream", async move {
            sleep_until(begin.max(since + stays)).await;
            let from = informer.cache.resource_version();
            if let Some(restarts) = informer.has_missed(at, of_silent).await {
                informer.has_missed_again(from, restarts).await;
            }
            informer.stall.0.lock().is_checking = false;
        });
    }

    /// Checks a stream that stands still. If it has missed something, reports that, and returns what [`Self::report`] does.
    async fn has_missed(&self, at: Position, of_silent: bool) -> Option<u64> {
        if !self.stands_at(at) {
            self.stall.end(at, None);
            return None;
        }
        let means = Means { is_suspected: !of_silent, may_read_all: self.stall.may_read_all() };
        let check = self.probe.check_stream(&self.cache, &self.reflector, means);
        let heard = timeout(PATIENCE, check).await.unwrap_or(Heard::Nothing);
        tracing::debug!(informer = %self.key, ?heard, "checked the stream");
        self.stall.end(at, Some(&heard));
        match heard {
            Heard::Missing(why) => Some(self.report(why, at)),
            heard if self.stall.lacks_bookmark(at, &heard) && self.reflector.has_bookmarks_every(SILENT) => {
                self.reflector.is_silent(Silence { why: "bookmarks do not come".to_owned(), at, missed: false });
                None
            }
            Heard::All { .. } | Heard::Strange { .. } | Heard::Nothing => None,
        }
    }

    /// Whether the stream is open and has said nothing since it was at `at`.
    pub(super) fn stands_at(&self, at: Position) -> bool {
        self.reflector.position() == at && self.reflector.status().state == "follow"
    }

    /// Reports that the stream has missed a change. Returns how many streams had ended before.
    pub(super) fn report(&self, why: String, at: Position) -> u64 {
        let restarts = self.reflector.status().restarts;
        self.reflector.is_silent(Silence { why, at, missed: true });
        restarts
    }

    /// The stream at `from` was given up after so many others, because it had missed a change. The next one must deliver
    /// it at once. If it says nothing either, that is reported, and no check is needed to know it. Returns whether it was.
    pub(super) async fn has_missed_again(&self, from: ResourceVersion, restarts: u64) -> bool {
        let begins = self.reflector.wait_for(|status| status.state == "follow" && status.restarts > restarts);
        if timeout(OPENED, begins).await.is_err() {
            return false;
        }
        sleep(BEGUN).await;
        let at = self.reflector.position();
        sleep(DELIVERED).await;
        let is_silent = self.stands_at(at) && self.cache.resource_version() == from;
        if is_silent {
            self.report(format!("another one from resource version {from} said nothing, either"), at);
        }
        is_silent
    }

    /// Checks a stream in use from which nothing came for long.
    fn check_if_silent(self: &Arc<Self>) {
        let is_silent = self.reflector.last_heard().is_none_or(|heard| heard.elapsed() >= SILENT);
        if is_silent && self.cache.is_ready() && self.idle_for() < SILENT {
            self.check_stream(true, self.reflector.position(), MOMENT);
        }
    }
}

// === impl Factory ===

impl Factory {
    /// Whether a stream of the resource stands still although the store has moved.
    pub fn is_stalled(&self, gvr: &Gvr) -> bool {
        self.informers().iter().any(|informer| informer.key.gvr == *gvr && informer.is_stalled())
    }

    /// Looks for silent streams. Never returns.
    pub(super) async fn check_silent(&self) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            if self.upstream().is_reachable() {
                self.informers().iter().for_each(Informer::check_if_silent);
            }
        }
    }
}
