//! The reflector's state machine: it decides the next step from the outcome of the last one. It does no I/O and reads
//! no clock.
//!
//! ```text
//! Learn ─► WatchList ─► Follow ─► Check ─► Watch ─► Follow …
//!            │ refused              │ below ours
//!            ▼                      ▼
//!          List ─► Watch          Confirm ─► Reset ─► Learn
//! ```
//!
//! Every step that fails waits and is tried again. A Gone (410) from the apiserver leads to Learn, and a resource that
//! is not found twice leads to the end. A state that does not fit into memory, or that has an object that cannot be
//! decoded, is given up and read again later.
//! Learn asks nothing where the form is known; if the state cannot be read then, it is learned after all.
//! WatchList and List change the store only when they are complete, and Follow changes it event by event. Only Reset
//! gives it up.

use std::time::Duration;

use tokio::time::Instant;

use super::end::ReflectorEnd;
use crate::lifecycle::backoff::{Backoff, BackoffConfig, jittered};
use crate::meta::ResourceVersion;

/// What the reflector does now, or does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Reads a state that an earlier process saved.
    Load,
    /// Reads a list of one object to learn how objects of this type are encoded.
    Learn,
    /// Collects the whole state from a watch that begins with it.
    WatchList,
    /// Collects the whole state in pages that all show the same revision.
    List,
    /// Collects the whole state in one request, because the revision of the pages has expired.
    ListWhole,
    /// Asks for the server's revision before a watch is resumed. A watch from a future revision is silently accepted;
    /// after a restore from a backup it would lose all events until that revision.
    Check,
    /// Opens a watch from the last revision.
    Watch,
    /// Applies events as they come.
    Follow,
    /// Asks a second time, because the revision seems to have gone back.
    Confirm,
    /// Gives the store up: its revisions belong to a history that was rolled back.
    Reset,
    /// Waits before the next attempt.
    Wait {
        until: Instant,
        /// Nothing ends the wait before this time: the server has asked for it.
        not_before: Instant,
        haste: Haste,
        then: Then,
    },
    /// The state was given up, and is read again later.
    Refused {
        until: Instant,
    },
    Ended(ReflectorEnd),
}

/// What may end a wait early, besides an apiserver that answers again after an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// Nothing: another attempt costs more than a small request, or will not help soon.
    None,
    /// A turn in the retry queue, because a stream broke.
    Turn,
    /// A turn in the retry queue, or an answer to another reflector, because the server refused or gave no answer.
    Answer,
}

/// What to do after a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Load,
    Learn,
    WatchList,
    List,
    Check,
    Confirm,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Load: there is a state, to be confirmed.
    Loaded,
    /// Load: there is none that can be used.
    NothingSaved,
    /// Learn: the apiserver has shown the form.
    Learned,
    /// Learn: it need not be asked for the form.
    Known,
    /// WatchList or List: the store has taken the whole state.
    Synced,
    /// Check or Confirm: the server's current revision.
    Current(ResourceVersion),
    /// Watch: the server has accepted it.
    Opened,
    /// Follow: the stream ended normally; `heard` tells whether anything had arrived.
    Ended {
        heard: bool,
    },
    /// Follow: the stream was silent for so long that it counts as dead, or it broke, or it was malformed.
    Broken,
    /// Follow: the stream is open, and did not deliver what others were told. `missed` tells whether that is a change, and
    /// `heard` whether anything had arrived on it.
    Silent {
        missed: bool,
        heard: bool,
    },
    /// WatchList: all expected objects came, but not their end: the server does not support watch-lists, or is late.
    Unmarked,
    /// WatchList: the stream broke after some objects, or fell silent; or it was refused without a reason.
    Unfinished,
    /// What arrived is older than the store, or contradicts it.
    WentBack,
    /// Reset: the store is given up.
    WasReset,
    /// The state is given up: it does not fit into memory, or no longer fits, or an object of it cannot be decoded.
    GivenUp,
    /// Wait: the time is over.
    Elapsed,
    Failed(Failure),
}

/// Why a request failed, as far as it matters for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server does not support watches that begin with the state.
    Refused,
    /// 410: the revision, or the continue token, is too old to continue from.
    Expired,
    Unauthorized,
    Forbidden,
    NotFound,
    /// 429 and 5xx, with the Retry-After of the server.
    Unavailable {
        retry_after: Option<Duration>,
    },
    /// The columns of the tables have changed.
    Changed,
    /// A cell of a table cannot be printed again.
    Unprintable,
    /// The objects have no revisions that can be compared.
    Unversioned,
    /// There are more objects than the reflector may read.
    Larger(usize),
    /// Everything else, from a broken connection to an answer that makes no sense.
    Other,
}

#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    pub(super) since: Instant,
    backoff: Backoff,
    /// The store's revision, set before each step; zero unless it holds a state.
    pub(super) rv: ResourceVersion,
    /// When the store last took a whole state.
    synced: Option<Instant>,
    /// Pages are read, because watch-lists are known to be refused.
    pub(super) paged: bool,
    /// The form was not asked for, and no state has been taken since.
    pub(super) assumed: bool,
    /// Number of watch-lists in a row that failed.
    watch_list_failures: u32,
    /// Number of answers in a row that the resource is forbidden.
    forbidden: u32,
    /// Number of answers in a row that the resource does not exist.
    not_found: u32,
    /// Number of streams in a row that were silent from their beginning.
    silent: u32,
    /// When a stream was last given up because it was silent.
    silent_at: Option<Instant>,
    /// The pauses after a state that was given up.
    room: Backoff,
    /// Number of whole states taken.
    pub(super) syncs: u64,
    pub(super) restarts: u64,
    pub(super) silences: u64,
    pub(super) rewinds: u64,
}

/// The resource must be reported as not found this many times: an apiserver that is starting may not know a custom
/// resource yet.
const NOT_FOUND: u32 = 2;

/// This many watch-lists may fail before pages are tried. A server from before KEP-3157 ignores the parameter, and
/// never marks the end of the state.
const WATCH_LISTS: u32 = 3;

/// A resource that was readable before must be forbidden this many times before that is accepted: an apiserver that is
/// starting may not know the roles yet.
const REVOKED: u32 = 3;

/// How often a forbidden resource is requested again; an administrator may grant access.
const FORBIDDEN: Duration = Duration::from_secs(30);

/// If no stream was silent for this long, the next one may begin at once.
const SILENT_SELDOM: Duration = Duration::from_secs(60);

/// After a stream that lived this long, the next one may begin at once, whether anything arrived or not.
const LIVED: Duration = Duration::from_secs(5);

// === impl Machine ===

impl Machine {
    pub(super) fn new(paged: bool, backoff: BackoffConfig, room: BackoffConfig, now: Instant) -> Self {
        Self {
            state: State::Learn,
            since: now,
            backoff: Backoff::new(backoff),
            rv: ResourceVersion::ZERO,
            synced: None,
            paged,
            assumed: false,
            watch_list_failures: 0,
            forbidden: 0,
            not_found: 0,
            silent: 0,
            silent_at: None,
            room: Backoff::new(room),
            syncs: 0,
            restarts: 0,
            silences: 0,
            rewinds: 0,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// The end of the wait, while it waits.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        match self.state {
            State::Wait { until, .. } | State::Refused { until } => Some(until),
            _ => None,
        }
    }

    /// Begins with a saved state.
    pub(super) fn load_first(&mut self) {
        self.state = State::Load;
    }

    /// Whether the whole state is read from the apiserver next, or nothing is.
    pub(super) fn reads_anew(&self) -> bool {
        match self.state {
            State::Load | State::Check | State::Watch | State::Follow | State::Confirm => false,
            State::Wait { then, .. } => !matches!(then, Then::Load | Then::Check | Then::Confirm),
            _ => true,
        }
    }

    /// The single transition function: moves from the present state to the next one, according to the outcome.
    pub(super) fn step(&mut self, outcome: Outcome, now: Instant) {
        let lived = now.saturating_duration_since(self.since);
        if self.state == State::Follow {
            self.backoff.healthy_for(lived);
            self.silent = match outcome {
                Outcome::Silent { heard: false, .. } => self.silent + 1,
                Outcome::Silent { heard: true, .. } => 1,
                _ => 0,
            };
        }
        if !matches!(outcome, Outcome::Failed(Failure::NotFound) | Outcome::Elapsed) {
            self.not_found = 0;
        }
        // A check may be allowed although the watch is not.
        if matches!(outcome, Outcome::Opened | Outcome::Synced) {
            (self.forbidden, self.assumed) = (0, false);
        }
        let next = match (self.state, outcome) {
            (State::Ended(end), _) => State::Ended(end),

            (state, Outcome::GivenUp) => {
                if state == State::Follow {
                    self.room.healthy_for(lived);
                }
                State::Refused { until: now + self.room.next(None) }
            }
            (State::Refused { .. }, Outcome::Elapsed) => State::Learn,

            (State::Load, Outcome::Loaded) => State::Check,
            (State::Load, Outcome::NothingSaved) => State::Learn,

            (State::Learn, Outcome::Learned | Outcome::Known) => {
                self.assumed = outcome == Outcome::Known;
                self.relist()
            }

            (State::WatchList, Outcome::Synced) => {
                self.watch_list_failures = 0;
                self.syncs += 1;
                self.synced = Some(now);
                State::Follow
            }
            (State::WatchList, Outcome::Failed(Failure::Refused)) => {
                self.paged = true;
                State::List
            }
            (State::WatchList, Outcome::Unmarked) => State::List,
            (State::WatchList, Outcome::Unfinished | Outcome::Ended { heard: true }) => {
                self.watch_list_failures += 1;
                if self.watch_list_failures >= WATCH_LISTS {
                    self.paged = true;
                    self.watch_list_failures = 0;
                }
                self.wait(self.relist_later(), None, now)
            }
            // This does not tell whether the server supports watch-lists.
            (State::WatchList, Outcome::Broken | Outcome::Ended { heard: false }) => {
                self.wait(self.relist_later(), None, now)
            }

            // A watch can continue from the revision of a list.
            (State::List | State::ListWhole, Outcome::Synced) => {
                self.syncs += 1;
                self.synced = Some(now);
                State::Watch
            }
            (State::List, Outcome::Failed(Failure::Expired)) => State::ListWhole,

            (State::WatchList | State::List | State::ListWhole, Outcome::WentBack) => State::Confirm,

            (State::Check, Outcome::Current(current)) if current < self.rv => State::Confirm,
            (State::Check, Outcome::Current(_)) => State::Watch,

            (State::Watch, Outcome::Opened) => {
                self.syncs = self.syncs.max(1);
                State::Follow
            }

            // Events from before the window are lost, so the state is read again; the store is still served meanwhile.
            // If the revision expires right after the read, there must be no tight loop of reads. A definition may have
            // changed, so the form is learned again.
            (State::Watch | State::Follow, Outcome::Failed(Failure::Expired)) => {
                if self.synced.is_some_and(|at| now.saturating_duration_since(at) < LIVED) {
                    self.wait(Then::Learn, None, now)
                } else {
                    State::Learn
                }
            }

            (State::Follow, Outcome::Ended { heard }) if heard || lived >= LIVED => {
                self.restarts += 1;
                State::Check
            }
            (State::Follow, Outcome::Ended { .. } | Outcome::Broken) => {
                self.restarts += 1;
                self.wait_for(Then::Check, None, Haste::Turn, now)
            }
            (State::Follow, Outcome::WentBack) => State::Confirm,
            (State::Follow, Outcome::Silent { missed, .. }) => {
                self.restarts += 1;
                self.silences += 1;
                let last = self.silent_at.replace(now);
                match self.silent {
                    1 if last.is_none_or(|last| now.saturating_duration_since(last) >= SILENT_SELDOM) => State::Check,
                    1 => self.wait_for(Then::Check, None, Haste::None, now),
                    // Nothing came from where it stood, on another connection either. A list does not need a watch.
                    _ if missed => self.wait(Then::List, None, now),
                    _ => self.wait_for(Then::Check, None, Haste::None, now),
                }
            }

            // Two consistent reads are below our revision: the store was restored from a backup.
            (State::Confirm, Outcome::Current(current)) if current < self.rv => State::Reset,
            // That apiserver was only behind. The whole state settles what contradicted the store. It may know no watch-lists.
            (State::Confirm, Outcome::Current(_)) => self.wait(Then::Learn, None, now),
            (State::Reset, Outcome::WasReset) => {
                self.rewinds += 1;
                State::Learn
            }

            (State::Wait { then, .. }, Outcome::Elapsed) => match then {
                Then::Load => State::Load,
                Then::Learn => State::Learn,
                Then::WatchList => State::WatchList,
                Then::List => State::List,
                Then::Check => State::Check,
                Then::Confirm => State::Confirm,
            },

            (_, Outcome::Failed(failure)) => self.failed(failure, now),

            // Outcomes that no step of this state has.
            (state, outcome) => {
                debug_assert!(false, "{outcome:?} in {state:?}");
                self.wait(self.again(), None, now)
            }
        };
        self.state = next;
        self.since = now;
    }

    /// Every failure leads to another attempt, sooner or later.
    fn failed(&mut self, failure: Failure, now: Instant) -> State {
        let then = self.again();
        match failure {
            Failure::NotFound => {
                self.not_found += 1;
                if self.not_found >= NOT_FOUND {
                    return State::Ended(ReflectorEnd::Gone);
                }
                self.wait(then, None, now)
            }
            Failure::Forbidden => {
                self.forbidden += 1;
                if self.syncs > 0 && self.forbidden < REVOKED {
                    return self.wait_for(then, None, Haste::Answer, now);
                }
                let until = now + jittered(FORBIDDEN);
                State::Wait { until, not_before: now, haste: Haste::None, then }
            }
            Failure::Changed => State::Ended(ReflectorEnd::Changed),
            Failure::Unprintable => State::Ended(ReflectorEnd::Unprintable),
            Failure::Unversioned => State::Ended(ReflectorEnd::Unversioned),
            Failure::Larger(objects) => State::Ended(ReflectorEnd::Larger(objects)),
            // Reads of the whole state are never retried early.
            Failure::Unavailable { retry_after } if self.reads_all() => self.wait(then, retry_after, now),
            Failure::Unavailable { retry_after } => self.wait_for(then, retry_after, Haste::Answer, now),
            Failure::Unauthorized => self.wait_for(then, None, Haste::Answer, now),
            Failure::Other if !self.reads_all() => self.wait_for(then, None, Haste::Answer, now),
            Failure::Refused | Failure::Expired | Failure::Other => self.wait(then, None, now),
        }
    }

    /// What to do again after the present step has failed.
    fn again(&self) -> Then {
        match self.state {
            State::Load => Then::Load,
            State::Learn => Then::Learn,
            State::WatchList | State::List | State::ListWhole | State::Reset => self.relist_later(),
            State::Confirm => Then::Confirm,
            State::Check | State::Watch | State::Follow => Then::Check,
            State::Wait { then, .. } => then,
            State::Refused { .. } | State::Ended(_) => Then::Learn,
        }
    }

    /// Whether this step reads the whole state, so that a failed attempt is expensive.
    fn reads_all(&self) -> bool {
        matches!(self.state, State::WatchList | State::List | State::ListWhole)
    }

    fn relist(&self) -> State {
        if self.paged { State::List } else { State::WatchList }
    }

    fn relist_later(&self) -> Then {
        match (self.assumed, self.paged) {
            (true, _) => Then::Learn,
            (false, true) => Then::List,
            (false, false) => Then::WatchList,
        }
    }

    fn wait(&mut self, then: Then, retry_after: Option<Duration>, now: Instant) -> State {
        self.wait_for(then, retry_after, Haste::None, now)
    }

    fn wait_for(&mut self, then: Then, retry_after: Option<Duration>, haste: Haste, now: Instant) -> State {
        let not_before = now + self.backoff.asked(retry_after);
        State::Wait { until: now + self.backoff.next(retry_after), not_before, haste, then }
    }
}
