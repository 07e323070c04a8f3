//! Whether anything is where the apiserver should be. One failed request says little: a slow server behind the apiserver fails
//! those of one client. So only the client's own probes count, and any answer to anybody, or byte of one, counts against them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// The apiserver was looked for, and nothing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// When something last came from it.
    pub since: Instant,
}

/// The probes without an answer since something last came from the apiserver.
#[derive(Debug, Default)]
pub(super) struct Misses {
    /// When one of them began.
    one: Mutex<Option<Instant>>,
    pub(super) away: watch::Sender<Option<Away>>,
}

/// Two probes that begin this far apart must fail. The seeker begins one each second.
const APART: Duration = Duration::from_millis(900);
/// A probe that has taken longer than its timeout and this says that the process stood still, and nothing of the apiserver.
const LATE: Duration = Duration::from_millis(3500);
/// Times of what was heard are rounded down to this.
const PRECISION: Duration = Duration::from_millis(1);

// === impl Misses ===

impl Misses {
    /// Records a probe that found nothing there, neither on a new connection nor on an open one. `heard`: when something last
    /// came from the apiserver.
    pub(super) fn missed(&self, begun: Instant, heard: Option<Instant>) {
        if begun.elapsed() > LATE {
            return;
        }
        let is_silent_since = |from: Instant| heard.is_none_or(|heard| heard + PRECISION < from);
        let mut one = self.one.lock();
        let earlier = one.filter(|one| is_silent_since(*one));
        let Some(other) = earlier else {
            *one = is_silent_since(begun).then_some(begun);
            return;
        };
        let (first, last) = (other.min(begun), other.max(begun));
        if !is_silent_since(first) {
            return;
        }
        *one = Some(first);
        if last.duration_since(first) >= APART && self.away.borrow().is_none_or(|away| Some(away.since) < heard) {
            self.away.send_replace(Some(Away { since: heard.unwrap_or(first) }));
        }
    }

    /// Records that something has answered there.
    pub(super) fn answered(&self) {
        let mut one = self.one.lock();
        *one = None;
        self.away.send_if_modified(|away| away.take().is_some());
    }
}

#[cfg(test)]
#[path = "away_tests.rs"]
mod tests;
