//! The status of a reflector, for other parts of the daemon.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::super::proofs::Asked;
use crate::apiserver::client::ConnectionId;
use crate::apiserver::stamp::Stamp;
use crate::meta::ResourceVersion;

/// Reads the status of a reflector, also after its end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<SharedHandle>,
}

/// The status of a reflector at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorStatus {
    /// `load`, `learn`, `watchList`, `list`, `check`, `watch`, `follow`, `confirm`, `reset`, `wait`, `refused` or `ended`.
    pub state: &'static str,
    pub since: Instant,
    /// The store holds a state, though perhaps not the latest one.
    pub synced: bool,
    /// The last error, and when it happened. Later success does not clear it.
    pub last_error: Option<String>,
    pub last_error_at: Option<Instant>,
    /// The HTTP status of the last error, 0 if it had none; cleared when events are followed again.
    pub failing: Option<u16>,
    /// When the reflector will retry the step that it waits for.
    pub retry_at: Option<Instant>,
    /// The state does not fit into memory, or did not fit at the last attempt.
    pub too_large: bool,
    /// An object of the state cannot be decoded, or could not at the last attempt; `last_error` names it.
    pub undecodable: bool,
    /// There is no state yet, and two attempts in a row to read one have failed although the apiserver answers.
    pub stuck: bool,
    /// Attempts in a row that have failed although the apiserver answers.
    pub(super) failures: u32,
    /// Number of whole states taken after the first.
    pub relists: u64,
    /// Number of watches that ended and were resumed.
    pub restarts: u64,
    /// Number of watches that were given up because they did not deliver what the store holds.
    pub silences: u64,
    /// Number of resets because the store behind the apiserver was restored from a backup.
    pub rewinds: u64,
    /// Whether whole states are read in pages because the server refuses watch-lists.
    pub paged: bool,
    pub garbage_frames: u64,
    pub events: u64,
    pub bookmarks: u64,
    pub last_event: Option<Instant>,
    /// The time of the last event, bookmark, whole state or answer to the reflector.
    pub last_heard: Option<Instant>,
    /// The revision of the store; zero unless synced.
    pub resource_version: ResourceVersion,
}

#[derive(Debug)]
struct SharedHandle {
    /// What changes with states. What changes with every event is below, and here as it was at the start.
    cold: watch::Sender<ReflectorStatus>,
    events: AtomicU64,
    bookmarks: AtomicU64,
    garbage: AtomicU64,
    last_event: Stamp,
    last_heard: Stamp,
    rv: AtomicU64,
    taken: Mutex<Option<(Asked, ResourceVersion)>>,
    /// Maximum number of objects of a first state that is worth reading.
    most: AtomicUsize,
    /// Why a comparison contradicts the cache.
    doubt: watch::Sender<String>,
    /// The number of streams so far, and the connection of the last one.
    streams: AtomicU64,
    connection: Mutex<Option<ConnectionId>>,
    /// Milliseconds between the last two bookmarks; zero before that.
    bookmark_gap: AtomicU64,
    last_bookmark: Stamp,
    /// What a check has found that shows that the stream does not say what it should.
    silence: watch::Sender<Silence>,
}

/// How far a stream has come. It is different after each event and bookmark, and in each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    stream: u64,
    events: u64,
    bookmarks: u64,
}

/// Evidence that the stream is open and does not say what it should.
#[derive(Clone, Debug, Default)]
pub struct Silence {
    pub why: String,
    /// Where the stream stood. If it has moved since, this is no evidence.
    pub at: Position,
    /// Whether it has missed a change. Otherwise only bookmarks did not come.
    pub missed: bool,
}

/// After this many failures in a row, another one is likely.
pub(super) const STUCK: u32 = 2;

// === impl ReflectorStatus ===

impl ReflectorStatus {
    /// What the server currently refuses: the `resource` (403), the `encoding` (406), a `watchList`. The first two are
    /// tried again after 30 s to 45 s, and the last after 10 minutes.
    pub fn refuses(&self) -> Vec<&'static str> {
        let refusals = [
            ("resource", self.failing == Some(403)),
            ("encoding", self.failing == Some(406)),
            ("watchList", self.paged),
        ];
        refusals.into_iter().filter(|(_, refused)| *refused).map(|(what, _)| what).collect()
    }

    /// A readable name of the state.
    pub fn step(&self) -> &'static str {
        match self.state {
            "load" | "learn" => "starting",
            "watchList" | "list" => "listing",
            "check" | "confirm" => "checking the revision",
            "watch" => "opening the watch",
            "follow" => "watching",
            "wait" => "waiting to retry",
            "refused" if self.undecodable => "waiting to decode",
            "refused" => "waiting for memory",
            "reset" => "starting anew",
            _ => "ended",
        }
    }

    fn has_given_up(&self) -> bool {
        self.too_large || self.undecodable
    }
}

// === impl Handle ===

impl Handle {
    pub(super) fn new(now: Instant) -> Self {
        let cold = ReflectorStatus {
            state: "learn",
            since: now,
            synced: false,
            last_error: None,
            last_error_at: None,
            failing: None,
            retry_at: None,
            too_large: false,
            undecodable: false,
            stuck: false,
            failures: 0,
            relists: 0,
            restarts: 0,
            silences: 0,
            rewinds: 0,
            paged: false,
            garbage_frames: 0,
            events: 0,
            bookmarks: 0,
            last_event: None,
            last_heard: None,
            resource_version: ResourceVersion::ZERO,
        };
        let zero = || AtomicU64::new(0);
        Self {
            shared: Arc::new(SharedHandle {
                cold: watch::Sender::new(cold),
                events: zero(),
                bookmarks: zero(),
                garbage: zero(),
                last_event: Stamp::new(now),
                last_heard: Stamp::new(now),
                rv: zero(),
                taken: Mutex::default(),
                most: AtomicUsize::new(usize::MAX),
                doubt: watch::Sender::default(),
                streams: zero(),
                connection: Mutex::default(),
                bookmark_gap: zero(),
                last_bookmark: Stamp::new(now),
                silence: watch::Sender::default(),
            }),
        }
    }

    pub fn status(&self) -> ReflectorStatus {
        let shared = &self.shared;
        let cold = shared.cold.borrow().clone();
        ReflectorStatus {
            garbage_frames: shared.garbage.load(Ordering::Relaxed),
            events: shared.events.load(Ordering::Relaxed),
            bookmarks: shared.bookmarks.load(Ordering::Relaxed),
            last_event: shared.last_event.get(),
            last_heard: shared.last_heard.get(),
            resource_version: ResourceVersion(shared.rv.load(Ordering::Relaxed)),
            ..cold
        }
    }

    /// Waits until the status satisfies the condition. The condition is checked when the state changes, not at every
    /// event.
    pub async fn wait_for(&self, mut condition: impl FnMut(&ReflectorStatus) -> bool) -> ReflectorStatus {
        let mut changes = self.shared.cold.subscribe();
        loop {
            changes.mark_unchanged();
            let status = self.status();
            if condition(&status) {
                return status;
            }
            // The sender is owned by `self`.
            changes.changed().await.ok();
        }
    }

    /// Waits until the apiserver refuses the resource (403) or the encoding (406), or until the state is given up; with `or_stuck`, also until it is stuck.
    pub async fn refused(&self, or_stuck: bool) {
        let is_refused = |status: &ReflectorStatus| matches!(status.failing, Some(403 | 406)) || status.has_given_up();
        self.wait_for(|status| is_refused(status) || or_stuck && status.stuck).await;
    }

    /// Makes the reflector end instead of reading its first state if that has more than `objects` objects. Only a bound
    /// that is set before the first answer arrives has an effect.
    pub fn read_at_most(&self, objects: usize) {
        self.shared.most.store(objects, Ordering::Relaxed);
    }

    pub(super) fn most(&self) -> usize {
        self.shared.most.load(Ordering::Relaxed)
    }

    /// Reports that the cache appears to contradict the store. A reflector that follows checks this itself; in any
    /// other step it is about to do so anyway.
    pub fn doubt(&self, why: &str) {
        self.shared.doubt.send_replace(why.to_owned());
    }

    /// Waits for a doubt that is reported after this call.
    pub(super) async fn doubted(&self) -> String {
        next(&self.shared.doubt).await
    }

    /// How far the stream has come.
    pub fn position(&self) -> Position {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let SharedHandle { streams, events, bookmarks, .. } = &*self.shared;
        Position { stream: load(streams), events: load(events), bookmarks: load(bookmarks) }
    }

    /// The connection that the stream arrives on.
    pub(in crate::upstream) fn connection(&self) -> Option<ConnectionId> {
        *self.shared.connection.lock()
    }

    /// Whether the apiserver was last seen to send bookmarks at least this often.
    pub fn has_bookmarks_every(&self, time: Duration) -> bool {
        let gap = self.shared.bookmark_gap.load(Ordering::Relaxed);
        gap > 0 && Duration::from_millis(gap) <= time
    }

    /// Reports that the stream does not say what it should.
    pub fn is_silent(&self, silence: Silence) {
        self.shared.silence.send_replace(silence);
    }

    /// Waits for such a report that comes after this call.
    pub(super) async fn silenced(&self) -> Silence {
        next(&self.shared.silence).await
    }

    /// A stream begins.
    pub(super) fn follows(&self, connection: Option<ConnectionId>) {
        self.shared.streams.fetch_add(1, Ordering::Relaxed);
        *self.shared.connection.lock() = connection;
    }

    /// Whether the caches currently have no memory for the state.
    pub fn is_too_large(&self) -> bool {
        self.shared.cold.borrow().too_large
    }

    /// See [`ReflectorStatus::undecodable`].
    pub fn is_undecodable(&self) -> bool {
        self.shared.cold.borrow().undecodable
    }

    /// Whether the state was given up, for either reason.
    pub fn has_given_up(&self) -> bool {
        self.shared.cold.borrow().has_given_up()
    }

    /// See [`ReflectorStatus::stuck`].
    pub fn is_stuck(&self) -> bool {
        self.shared.cold.borrow().stuck
    }

    /// Whether the apiserver currently refuses access to the resource.
    pub fn is_forbidden(&self) -> bool {
        self.shared.cold.borrow().failing == Some(403)
    }

    /// Whether the apiserver does not support the encoding for this type.
    pub fn is_unacceptable(&self) -> bool {
        self.shared.cold.borrow().failing == Some(406)
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut ReflectorStatus)) {
        self.shared.cold.send_modify(change);
    }

    pub(super) fn event(&self, rv: ResourceVersion, now: Instant) {
        let shared = &self.shared;
        shared.events.fetch_add(1, Ordering::Relaxed);
        shared.last_event.set(now);
        shared.last_heard.set(now);
        self.reached(rv);
    }

    pub(in crate::upstream) fn bookmark(&self, now: Instant) {
        let shared = &self.shared;
        if let Some(last) = shared.last_bookmark.get() {
            let gap = now.saturating_duration_since(last).as_millis();
            shared.bookmark_gap.store(u64::try_from(gap).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
        }
        shared.last_bookmark.set(now);
        shared.bookmarks.fetch_add(1, Ordering::Relaxed);
        self.heard(now);
    }

    /// Records that the apiserver has answered.
    pub(super) fn heard(&self, now: Instant) {
        self.shared.last_heard.set(now);
    }

    /// When data from the apiserver last arrived.
    pub fn last_heard(&self) -> Option<Instant> {
        self.shared.last_heard.get()
    }

    pub(super) fn garbage(&self) {
        self.shared.garbage.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the whole state that the cache has taken, or takes as its first one: what the apiserver had after this moment, or later.
    pub fn took(&self, whole: (Asked, ResourceVersion)) {
        *self.shared.taken.lock() = Some(whole);
    }

    /// The last whole state: when it was asked for, and its revision. Everything that was written before that moment has this
    /// revision or an earlier one. `None` if there is none, or only a saved one.
    pub fn taken(&self) -> Option<(Asked, ResourceVersion)> {
        *self.shared.taken.lock()
    }

    pub(super) fn reached(&self, rv: ResourceVersion) {
        self.shared.rv.store(rv.0, Ordering::Relaxed);
    }
}

/// Waits for a value that is sent after this call.
async fn next<T: Clone>(sender: &watch::Sender<T>) -> T {
    let mut values = sender.subscribe();
    values.changed().await.ok();
    values.borrow().clone()
}
