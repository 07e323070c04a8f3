//! What is known of a stream that stands still, and what it owes.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::meta::ResourceVersion;
use crate::upstream::reflector::Position;
use crate::upstream::silence::{Heard, SILENT};

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
    pub(super) is_checking: bool,
    /// Where the stream stood at the last check, and how many checks found nothing missing there.
    checked: Option<(Position, u32)>,
    /// When the next check may begin: one for a read, and one of a stream from which nothing comes.
    next: Option<Instant>,
    next_of_silent: Option<Instant>,
    /// When a check may compare a large collection again.
    next_large: Option<Instant>,
    /// Where the stream stood when another watch got a bookmark, and when that was.
    bookmark: Option<(Position, Instant)>,
    /// The newest revision of an object that the stream owes, while a task waits for it.
    pub(super) owed: Option<ResourceVersion>,
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
pub(super) const MOMENT: Duration = Duration::from_secs(1);
/// The pause after a check that has found nothing missing. It doubles where the apiserver does not say.
const PAUSE: Duration = Duration::from_secs(5);
/// The pause after a comparison of a large collection that has found nothing missing. It doubles up to [`LONGEST`].
const LARGE_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

// === impl Stall ===

impl Stall {
    /// Whether a read has waited in vain since the stream last moved.
    pub(super) fn holds(&self, at: ResourceVersion) -> bool {
        let mut state = self.0.lock();
        let Some((stood, until, _)) = state.stood else { return false };
        if stood != at {
            state.moved();
        } else if Instant::now() >= until {
            state.stood = None;
        }
        state.stood.is_some()
    }

    pub(super) fn stands(&self, at: ResourceVersion, why: Why, waited: Duration) {
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
    pub(super) fn begin(&self, of_silent: bool) -> Option<Instant> {
        let (mut state, now) = (self.0.lock(), Instant::now());
        let (next, latest) = if of_silent { (state.next_of_silent, now) } else { (state.next, now + PAUSE) };
        let begin = next.unwrap_or(now).max(now);
        if state.is_checking || begin > latest {
            return None;
        }
        state.is_checking = true;
        Some(begin)
    }

    pub(super) fn may_read_all(&self) -> bool {
        self.0.lock().next_large.is_none_or(|next| Instant::now() >= next)
    }

    /// A check has ended, of a stream that stood at `at`. `None` if the stream moved before it began.
    pub(super) fn end(&self, at: Position, heard: Option<&Heard>) {
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
    pub(super) fn lacks_bookmark(&self, at: Position, heard: &Heard) -> bool {
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

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

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
