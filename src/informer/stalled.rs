//! Streams that stand still although the store has moved.
//!
//! A read that has waited in vain for its stream says so. Until the stream moves, the reads after it do not wait again:
//! they are forwarded. Meanwhile a check finds out whether the stream has missed something. If it has, it is opened
//! anew. A stream from which nothing at all came for longer than the apiserver's bookmarks take is checked as well.
//! [`super::owed`] has the changes of which no check is needed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

use super::owed::Owed;
use super::{Factory, Informer};
use crate::lifecycle;
use crate::meta::{Gvr, ResourceVersion};
use crate::upstream::reflector::{Position, Silence};
use crate::upstream::silence::{Heard, Means, SILENT};

/// What is known of a stream that stands still.
#[derive(Debug, Default)]
pub(super) struct Stall(pub(super) Mutex<StallState>);

#[derive(Debug, Default)]
pub(super) struct StallState {
    /// Where it stood when a read had waited in vain, until when that counts, and why that was.
    stood: Option<(ResourceVersion, Instant, Why)>,
    /// Where it stood when a read first had to go without it, and when that was.
    late: Option<(ResourceVersion, Instant)>,
    /// How often that was so since the stream moved.
    in_vain: u32,
    is_checking: bool,
    /// Where the stream stood at the last check, and how many checks found nothing missing there.
    checked: Option<(Position, u32)>,
    /// When the next check may begin: one for a read, and one of a stream from which nothing comes.
    next: Option<Instant>,
    next_of_silent: Option<Instant>,
    /// When a check may compare a large collection again.
    next_large: Option<Instant>,
    /// Where the stream stood when another watch got a bookmark, the revision of that bookmark, and when that was.
    bookmark: Option<(Position, Instant)>,
    /// What the stream owes.
    pub(super) owed: Owed,
}

/// Why a read has waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The store has something that the stream does not deliver.
    Behind,
    /// The apiserver did not even say where its store is.
    NoAnswer,
}

/// How long other reads do not wait. It doubles with each further wait in vain. An apiserver that answers late is tried
/// again sooner: it would have more work with forwarded reads.
const BEHIND_FOR: Duration = Duration::from_secs(10);
const NO_ANSWER_FOR: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(60);
/// A stream that moves within this time does not stand still.
const MOMENT: Duration = Duration::from_secs(1);
/// The pause after a check that has found nothing missing. It doubles where the apiserver does not say.
const PAUSE: Duration = Duration::from_secs(5);
/// The pause after a comparison of a large collection that has found nothing missing. It doubles up to [`LONGEST`].
const LARGE_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
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

// === impl Stall ===

impl Stall {
    /// Whether a read has waited in vain since the stream last moved.
    fn holds(&self, at: ResourceVersion) -> bool {
        let mut state = self.0.lock();
        let Some((stood, until, _)) = state.stood else { return false };
        if stood != at {
            state.moved();
        } else if Instant::now() >= until {
            state.stood = None;
        }
        state.stood.is_some()
    }

    fn stands(&self, at: ResourceVersion, why: Why, waited: Duration) {
        let first = if why == Why::Behind { BEHIND_FOR } else { NO_ANSWER_FOR };
        let mut state = self.0.lock();
        let since = state.late.filter(|(stood, _)| *stood == at).map_or_else(Instant::now, |(_, since)| since);
        state.late = Some((at, since));
        if waited < MOMENT && since.elapsed() < MOMENT {
            return;
        }
        let during = first.saturating_mul(1 << state.in_vain.min(8)).min(LONGEST);
        state.in_vain = state.in_vain.saturating_add(1);
        state.stood = Some((at, Instant::now() + during, why));
    }

    /// A read was proved in time.
    pub(super) fn moved(&self) {
        self.0.lock().moved();
    }

    /// When a check may begin. What shows that one is needed does not come again, so it waits for a short pause to end.
    fn begin(&self, of_silent: bool) -> Option<Instant> {
        let (mut state, now) = (self.0.lock(), Instant::now());
        let (next, latest) = if of_silent { (state.next_of_silent, now) } else { (state.next, now + PAUSE) };
        let begin = next.unwrap_or(now).max(now);
        if state.is_checking || begin > latest {
            return None;
        }
        state.is_checking = true;
        Some(begin)
    }

    fn may_read_all(&self) -> bool {
        self.0.lock().next_large.is_none_or(|next| Instant::now() >= next)
    }

    /// A check has ended, of a stream that stood at `at`. `None` if the stream moved before it began.
    fn end(&self, at: Position, heard: Option<&Heard>) {
        let (mut state, now) = (self.0.lock(), Instant::now());
        let before = state.checked.filter(|(position, _)| *position == at).map_or(0, |(_, count)| count);
        let grown = |pause: Duration| now + pause.saturating_mul(1 << before.min(10)).min(LONGEST_PAUSE);
        state.next = match heard {
            None | Some(Heard::Missing(_)) => None,
            Some(Heard::All { .. } | Heard::Strange { .. }) => Some(now + PAUSE),
            Some(Heard::Nothing) => Some(grown(PAUSE)),
        };
        if let Some(Heard::Strange { compared: true }) = heard {
            state.next_large = Some(grown(LARGE_PAUSE).min(now + LONGEST));
        }
        state.next_of_silent = Some(grown(SILENT));
        state.checked = heard.map(|_| (at, before.saturating_add(1)));
        if matches!(heard, Some(Heard::All { .. })) && state.stood.is_some_and(|(_, _, why)| why == Why::Behind) {
            state.moved();
        }
    }

    /// A check of the stream, which was at `at`, has ended. Returns whether another watch got a bookmark, as it did while
    /// the stream was there before, so long ago that the stream should have had it since.
    fn lacks_bookmark(&self, at: Position, heard: &Heard) -> bool {
        if !matches!(heard, Heard::All { bookmark: true, .. }) {
            return false;
        }
        let mut state = self.0.lock();
        match state.bookmark {
            Some((before, when)) if before == at => when.elapsed() >= SILENT,
            _ => {
                state.bookmark = Some((at, Instant::now()));
                false
            }
        }
    }
}

// === impl StallState ===

impl StallState {
    fn moved(&mut self) {
        (self.stood, self.late, self.in_vain) = (None, None, 0);
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const AT: ResourceVersion = ResourceVersion(5);

    #[tokio::test(start_paused = true)]
    async fn the_more_often_reads_wait_in_vain_the_longer_others_do_not() {
        let stall = Stall::default();
        for (why, seconds) in [(Why::Behind, [10, 20, 40, 60, 60]), (Why::NoAnswer, [3, 6, 12, 24, 48])] {
            for expected in seconds {
                stall.stands(AT, why, MOMENT);
                let since = Instant::now();
                while stall.holds(AT) {
                    sleep(MOMENT).await;
                }
                assert_eq!(since.elapsed().as_secs(), expected, "{why:?}");
            }
            stall.stands(AT, why, MOMENT);
            assert!(!stall.holds(AT.next()), "it has moved");
        }
        // A short wait is no wait in vain, unless the stream stands still.
        let short = MOMENT / 10;
        stall.stands(AT, Why::Behind, short);
        assert!(!stall.holds(AT));
        sleep(MOMENT).await;
        stall.stands(AT, Why::Behind, short);
        assert!(stall.holds(AT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_is_checked_ever_more_rarely() {
        let (stall, at) = (Stall::default(), Position::default());
        let check = |of_silent, heard: &Heard| {
            let begins = stall.begin(of_silent) == Some(Instant::now());
            if begins {
                stall.end(at, Some(heard));
            }
            stall.0.lock().is_checking = false;
            usize::from(begins)
        };
        let nothing_missing = Heard::All { rv: AT, bookmark: false };
        let mut checks = 0;
        for _ in 0..3600 {
            checks += check(true, &nothing_missing);
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(checks, 9, "in an hour");
        // One for a read does not wait for that, and may be followed by another at once if something was missing.
        assert_eq!([check(false, &nothing_missing), check(false, &nothing_missing)], [1, 0]);
        sleep(PAUSE).await;
        let missing = Heard::Missing(String::new());
        assert_eq!([check(false, &missing), check(false, &missing)], [1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_collection_is_compared_once_a_minute_at_most() {
        let (stall, mut comparisons) = (Stall::default(), 0);
        for _ in 0..600 {
            if stall.may_read_all() {
                stall.end(Position::default(), Some(&Heard::Strange { compared: true }));
                comparisons += 1;
            }
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(comparisons, 12, "in ten minutes");
        // What it has meanwhile is asked for after a short pause, which the reason to ask waits for.
        assert_eq!(stall.begin(false), Some(Instant::now()));
        stall.end(Position::default(), Some(&Heard::Strange { compared: false }));
        assert_eq!(stall.begin(false), None, "one at a time");
        stall.0.lock().is_checking = false;
        assert_eq!(stall.begin(false), Some(Instant::now() + PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn only_bookmarks_beyond_the_stream_show_that_it_lacks_them() {
        let (stall, at) = (Stall::default(), Position::default());
        let compared = Heard::All { rv: AT, bookmark: false };
        let bookmark = Heard::All { rv: AT, bookmark: true };
        let mut lacks = Vec::new();
        for heard in [&compared, &compared, &Heard::Nothing, &bookmark, &compared, &bookmark] {
            lacks.push(stall.lacks_bookmark(at, heard));
            sleep(SILENT).await;
        }
        assert_eq!(lacks, [false, false, false, false, false, true]);
    }
}
