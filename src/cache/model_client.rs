//! A client of the model test: it holds what an ideal reflector would hold. Each item, each pause, each claim of its
//! watch and its end are judged.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tokio::time::Instant;

use super::model::*;
use super::testing::*;
use super::*;
use crate::meta::{EventType, ResourceVersion};
use crate::selector::Predicate;

pub(super) struct Client {
    pub(super) watcher: CacheWatcher,
    pub(super) predicate: Predicate,
    pub(super) cache: WatchCache,
    /// The history that it is of.
    pub(super) epoch: usize,
    /// The relists that its watch has lived through.
    gaps: Vec<Rc<Gap>>,
    held: State,
    /// It has the state of its start, which is from elsewhere if the cache was not there yet, and may be of the future.
    synced: bool,
    listing: bool,
    marked: bool,
    pub(super) start: u64,
    /// The cache had the state of its start when it began.
    pub(super) known: bool,
    /// The revision of the last item.
    last: u64,
    is_deletion: bool,
    /// Where a client continues that knows only items, as over REST.
    pub(super) position: Option<u64>,
    /// It has the events up to this revision from an earlier watch, and gets some of them again: those of `touched`.
    had: u64,
    touched: HashSet<String>,
    bookmarks: bool,
    pub(super) deadline: Instant,
    /// It was asked to end, with a last bookmark or without.
    pub(super) drained: Option<bool>,
    has_bookmark: bool,
    pub(super) ended: Option<EndReason>,
    pub(super) is_closed: Option<EndReason>,
}

/// What a client has, whether it has it already, and up to which revision.
type Kept = (State, bool, u64);

impl Client {
    pub(super) fn new(watcher: CacheWatcher, spec: &WatchSpec, cache: &WatchCache, epoch: usize, start: u64) -> Self {
        let listing = spec.start == WatchStart::State;
        Self {
            watcher,
            predicate: spec.predicate.clone(),
            cache: cache.clone(),
            epoch,
            gaps: Vec::new(),
            held: State::new(),
            synced: listing,
            listing,
            marked: listing && spec.initial_end,
            start,
            known: true,
            last: start,
            is_deletion: false,
            position: (!listing).then_some(start),
            had: 0,
            touched: HashSet::new(),
            bookmarks: spec.bookmarks,
            deadline: spec.deadline,
            drained: None,
            has_bookmark: false,
            ended: None,
            is_closed: None,
        }
    }

    /// Continues with what an earlier watch has left its client with.
    pub(super) fn with(&mut self, kept: Kept) {
        (self.held, self.synced, self.had) = kept;
    }

    pub(super) fn kept(&self) -> Kept {
        (self.held.clone(), self.synced, self.last.max(self.had))
    }

    /// The revision up to which its watch says that it has all changes, if it has come so far.
    pub(super) fn complete(&self) -> Option<u64> {
        Some(self.watcher.complete().0).filter(|rv| *rv > 0)
    }

    /// A list took the place of the events; the watch goes on if it can.
    pub(super) fn relisted(&mut self, gap: &Rc<Gap>) {
        self.gaps.push(gap.clone());
    }

    /// Takes the next item. Returns false if there is none now.
    pub(super) fn poll(&mut self, truth: &Model) -> bool {
        let polled = poll(&mut self.watcher);
        self.sync(truth);
        match &polled {
            Poll::Ready(Some(event)) => self.take(event, truth),
            Poll::Ready(None) if self.ended.is_none() => self.ends(truth),
            Poll::Ready(None) => {}
            Poll::Pending => self.rests(truth),
        }
        self.judge_claim(truth);
        matches!(polled, Poll::Ready(Some(_)))
    }

    /// The future that it began in has come.
    fn sync(&mut self, truth: &Model) {
        if !self.synced && truth.rv >= self.start {
            self.held = select(truth.at(self.start), &self.predicate);
            self.synced = true;
        }
    }

    fn take(&mut self, event: &WatcherEvent, truth: &Model) {
        let what = short(event);
        assert!(self.synced, "{what}, but {} has not come", self.start);
        let is_split = match event {
            WatcherEvent::Event { kind, object, rv } => {
                let key = object.key.as_str().to_owned();
                let at = rv.unwrap_or(object.rv).0;
                if self.listing && *kind == EventType::Added && at <= self.start {
                    assert!(self.held.keys().next_back().is_none_or(|last| *last < key), "{what} out of key order");
                    assert!(self.predicate.matches(object), "{what} is not selected");
                    assert!(is_same(truth.at(self.start).get(&key), Some(object)), "{what} at {}", self.start);
                    self.held.insert(key, object.clone());
                    return;
                }
                self.listing_ends(truth, &what);
                let is_deletion = *kind == EventType::Deleted;
                let together = is_deletion && truth.together.contains(&at);
                // Invariant 1.
                assert!(
                    at > self.last || at == self.last && self.is_deletion && together,
                    "{what} after {}",
                    self.last
                );
                // Invariant 3.
                let held = self.held.get(&key);
                assert!(held.is_some() == (*kind != EventType::Added) || at <= self.had, "{what}");
                match kind {
                    EventType::Deleted if rv.is_none() => {
                        assert!(
                            is_same(truth.deleted.get(&(at, key.clone())), Some(object)),
                            "{what}: {}",
                            text(object)
                        );
                        self.held.remove(&key);
                    }
                    EventType::Deleted => {
                        assert!(at <= self.had || is_same(held, Some(object)), "{what}: not its last selected state");
                        self.held.remove(&key);
                    }
                    _ => drop(self.held.insert(key.clone(), object.clone())),
                }
                self.touched.insert(key);
                (self.last, self.is_deletion) = (at, is_deletion);
                together
            }
            WatcherEvent::Bookmark { rv, initial_end } => {
                assert!(!initial_end || self.listing && self.marked && rv.0 == self.last, "{what} at {}", self.last);
                assert!(rv.0 >= self.last && (*initial_end || self.bookmarks && rv.0 > self.start), "{what}");
                assert!(*initial_end || !self.gaps.iter().any(|gap| gap.contains(rv.0)), "{what} is inside a gap");
                self.marked &= !initial_end;
                self.listing_ends(truth, &what);
                self.has_bookmark = true;
                (self.last, self.is_deletion) = (rv.0, false);
                false
            }
            WatcherEvent::Error(_) => panic!("{what}"),
        };
        self.position = Some(self.last);
        self.judge(self.last, is_split, truth, &what);
        let is_listed = self.is_closed.is_some() || self.gaps.iter().any(|gap| gap.to > self.last);
        // A state may have only some deletions of its revision.
        let is_whole = !is_split && !self.is_deletion && !is_listed && !truth.together.contains(&self.last);
        assert!(!is_whole || self.complete() >= Some(self.last), "{what} is not claimed");
    }

    fn listing_ends(&mut self, truth: &Model, what: &str) {
        if self.listing {
            assert!(!self.marked, "{what} before the end of the list");
            self.listing = false;
            self.judge(self.start, false, truth, what);
        }
    }

    /// Invariant 2, and more: at every event. `is_split`: other deletions of this revision may follow.
    fn judge(&self, rv: u64, is_split: bool, truth: &Model, what: &str) {
        let wanted = self.state(rv, truth);
        if rv < self.had {
            // What it gets again takes it back. The rest is ahead.
            let again = self.touched.iter().all(|key| is_same(self.held.get(key), wanted.get(key)));
            assert!(again || is_split, "{what} again");
            return;
        }
        if !is_split {
            return assert_same(self.held.values(), &wanted, &format!("after {what}, from {}", self.start));
        }
        let before = self.state(rv - 1, truth);
        for key in self.held.keys().chain(wanted.keys()) {
            let (held, wanted) = (self.held.get(key), wanted.get(key));
            assert!(is_same(held, wanted) || wanted.is_none() && is_same(held, before.get(key)), "{key} after {what}");
        }
    }

    /// The state that its watch should have brought it to.
    fn state(&self, rv: u64, truth: &Model) -> State {
        let within = self.gaps.iter().find_map(|gap| gap.at(rv));
        select(within.as_ref().unwrap_or_else(|| truth.at(rv)), &self.predicate)
    }

    /// A client that continues after `rv` gets every change that this one lacks.
    fn loses_nothing_after(&self, rv: u64, truth: &Model, what: &str) {
        let to = self.last.max(self.had).max(self.complete().unwrap_or(0));
        let wanted = select(truth.at(rv), &self.predicate);
        for key in self.held.keys().chain(wanted.keys()) {
            let comes = || truth.has_changed(key, rv, to.min(truth.rv));
            assert!(is_same(self.held.get(key), wanted.get(key)) || comes(), "{key} is lost after {rv}: {what}");
        }
    }

    fn judge_claim(&self, truth: &Model) {
        match self.complete() {
            None => assert!(self.listing, "it has the list"),
            Some(rv) if !self.synced => assert_eq!(rv, self.start),
            Some(rv) => {
                assert!(!self.marked, "the list is not complete");
                if self.listing {
                    self.judge(self.start, false, truth, "the whole list");
                }
                // What it was told of another past is not what the store says now.
                let is_old = rv <= self.start || self.is_closed.is_some();
                assert!(is_old || !self.is_unsure(rv), "nobody knows whether this is all");
                self.loses_nothing_after(rv, truth, "claimed");
            }
        }
    }

    fn dispatched(&self) -> u64 {
        self.cache.shared().dispatched_rv.load(Ordering::Acquire)
    }

    /// More deletions of this revision may follow.
    fn is_unsure(&self, rv: u64) -> bool {
        self.cache.shared().certain(ResourceVersion(rv)).0 < rv
    }

    /// All was delivered that it can have now.
    fn caught_up(&mut self, truth: &Model, what: &str) {
        let (dispatched, covered) = (self.dispatched(), self.watcher.starts_after().0);
        if !self.synced {
            return assert!(self.held.is_empty() && dispatched < self.start);
        }
        self.listing_ends(truth, what);
        let at = dispatched.max(covered);
        if at < self.last {
            let is_split = self.is_deletion && truth.together.contains(&self.last);
            return self.judge(self.last, is_split, truth, what);
        }
        self.judge(at, false, truth, what);
        let has_all = self.complete() == Some(at) || at == covered && truth.together.contains(&at);
        assert!(has_all, "{what}: {:?} is not {at}", self.complete());
    }

    fn rests(&mut self, truth: &Model) {
        assert!(self.ended.is_none() && self.is_closed.is_none(), "{:?}", self.is_closed);
        self.caught_up(truth, "a pause");
        let is_over = self.drained.is_some() && self.complete() >= Some(self.last);
        assert!(!is_over, "it was asked to end");
    }

    fn ends(&mut self, truth: &Model) {
        let reason = self.watcher.end_reason().unwrap();
        let what = format!("the end, {}", reason.as_str());
        self.ended = Some(reason);
        let cut_short = self.watcher.cut_short_at().map(|rv| rv.0);
        assert!(cut_short.is_none_or(|rv| rv >= self.last));
        let is_unsure = cut_short.is_some_and(|rv| self.is_unsure(rv));
        match reason {
            EndReason::Deadline => assert!(self.deadline <= Instant::now() && (cut_short.is_none() || is_unsure)),
            EndReason::Drained => {
                assert!(cut_short.is_none() || is_unsure, "it does not end by itself there");
                self.caught_up(truth, &what);
                let bookmark = self.drained.expect("it was asked to end") && self.bookmarks;
                let is_new = self.dispatched() > self.watcher.starts_after().0;
                assert!(!bookmark || self.has_bookmark || !is_new || is_unsure, "no last bookmark");
            }
            EndReason::TooSlow => {
                let oldest = self.cache.stats().window_oldest_rv;
                let least = self.last + u64::from(!self.is_deletion);
                assert!(oldest.is_none_or(|oldest| oldest.0 >= least), "what it lacks is in the window");
            }
            EndReason::Relisted | EndReason::NotReady | EndReason::Stopped => {
                // More may have happened before it looks.
                assert!(self.is_closed == Some(reason) || self.is_closed == Some(EndReason::Relisted));
            }
        }
        self.position = self.position.filter(|_| cut_short.is_none());
        if let Some(rv) = self.position.filter(|_| self.synced) {
            self.loses_nothing_after(rv, truth, &what);
        }
    }

    /// It is asked to end as soon as it has what is pending.
    pub(super) fn drain(&mut self, last_bookmark: bool) {
        if self.drained.is_none() {
            self.has_bookmark = false;
        }
        self.drained = Some(self.drained.is_none_or(|before| before) && last_bookmark);
    }
}
