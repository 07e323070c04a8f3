//! Reads the events from before the start of a cache's window. Watches need them when they come back to a daemon that
//! was restarted.
//!
//! A second watch starts at the oldest revision that a client waits for, and delivers the events up to the start of the
//! window. An event or bookmark from beyond that point shows that none is missing. The watch does not deliver the
//! previous states of objects, which are needed to tell when an object enters or leaves a selection. An exact list at
//! the old revision delivers them, either for the few objects that changed or for all. The cache compares the result
//! with the state that it was given, and takes it only if both are the same.
//!
//! Both requests are like the reflector's own: they ask for the same objects under the same identity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::reflector::ReflectorConfig;
use super::reflector::stream::{EventStream, read_page};
use super::source::ListerWatcher;
use crate::apiserver::UpstreamError;
use crate::apiserver::client::Upstream;
use crate::apiserver::metrics::RequestVerb;
use crate::cache::{Backfill, BackfillError, WatchCache};
use crate::codec::json::WatchFrame;
use crate::lifecycle;
use crate::meta::{ObjectKey, Origin, ResourceVersion, Status};

/// Extends the window of one informer's cache into the past. Any number of watches share its requests.
pub struct Backfiller {
    upstream: Upstream,
    source: ListerWatcher,
    config: ReflectorConfig,
    state: Mutex<BackfillState>,
    /// Held while requests are running; the callers wait for the result.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Until when it is not asked for a bookmark.
    bookmark: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct BackfillState {
    /// The revisions that watches wait to resume from, each with the number of such watches.
    wanted: BTreeMap<ResourceVersion, usize>,
    /// What the apiserver no longer has: the cache's generation, and the newest such revision.
    expired: (u64, ResourceVersion),
    /// No attempt is made before this time for revisions up to this one.
    refused: Option<(Instant, ResourceVersion)>,
}

/// The entry of one waiting caller.
struct WantedWindow<'a> {
    backfiller: &'a Backfiller,
    from: ResourceVersion,
}

#[derive(Debug, thiserror::Error)]
enum FillError {
    #[error("not in {ROUND:?}")]
    Timeout,
    #[error("the states of then are many, and wanted by few")]
    Dear,
    #[error(transparent)]
    Cache(#[from] BackfillError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// The bookmark comes two seconds before the end of a watch, as in [`super::proofs::progress`].
const WATCH_SECONDS: u64 = 3;
/// Minimum time between two watches that deliver nothing new.
const PACE: Duration = Duration::from_secs(1);
/// How long to wait for other clients: they come back at the same time, each with its own revision.
const GATHER: Duration = Duration::from_millis(50);
/// Time limit for all requests of one attempt. A watch that can be forwarded waits a little longer, and so learns of its end.
const ROUND: Duration = Duration::from_secs(4);
/// Time limit for waiting until it is the caller's turn.
const PATIENCE: Duration = Duration::from_secs(12);
/// Pause after an attempt that failed for another reason than the age of its revision.
const REFUSED: Duration = Duration::from_secs(30);
/// The same after one that too few have wanted. Others may come.
const DEAR: Duration = Duration::from_secs(3);
/// Up to this number of objects are requested one by one; more are read with a list of all.
const BY_NAME: usize = 32;
/// A list of more objects costs the apiserver more than so many watches of its own.
const LARGE: usize = 5000;
const MANY: usize = 8;
/// A bookmark that a watch begins with comes at once. Otherwise the next one of the stream is waited for.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a question for a bookmark that was not answered.
const UNANSWERED: Duration = Duration::from_secs(10);

// === impl Backfiller ===

impl Backfiller {
    pub fn new(upstream: Upstream, source: ListerWatcher, config: ReflectorConfig) -> Self {
        let (state, turn, bookmark) = (Mutex::default(), Arc::default(), tokio::sync::Mutex::default());
        Self { upstream, source, config, state, turn, bookmark }
    }

    /// Asks for the form of bookmarks, once for all callers. A cache whose state was read by a list, as tables always are, has none
    /// before its first bookmark, which takes a minute. Takes three seconds at most.
    pub async fn learn_bookmark(&self, cache: &WatchCache) {
        let mut refused = self.bookmark.lock().await;
        if cache.bookmark_template().is_some() || refused.is_some_and(|until| Instant::now() < until) {
            return;
        }
        match self.read_bookmark().await {
            Some(object) => cache.set_bookmark_template(object),
            None => *refused = Some(Instant::now() + UNANSWERED),
        }
    }

    /// Reads the object of a bookmark, which a watch of nothing begins with. `None` if the server does not support watch-lists,
    /// or does not answer.
    async fn read_bookmark(&self) -> Option<Bytes> {
        if self.upstream.refuses_watch_list(&self.source.resource.gvr.group, self.config.refused_for) {
            return None;
        }
        let nobody = self.source.nothing();
        let (path, options) = (nobody.watch_list_path(TIMEOUT.as_secs()), self.source.options(RequestVerb::Probe));
        let until = Instant::now() + TIMEOUT;
        let open = EventStream::open(&self.upstream, &nobody, &self.config, &path, TIMEOUT, options);
        let mut stream = timeout_at(until, open).await.ok()?.ok()?;
        loop {
            if let WatchFrame::Bookmark { object, .. } = stream.next(until).await.ok()?? {
                return Some(object);
            }
        }
    }

    /// Extends the window back to `from` if that can be done exactly. The attempt also covers the revisions that other
    /// callers want at the same time, and goes on without its caller. Takes 16 seconds at most.
    pub async fn reach(self: &Arc<Self>, cache: &WatchCache, from: ResourceVersion) {
        // Many events expire at the same revision, and the apiserver sends no bookmarks for them.
        if self.source.resource.gvr.is_events() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let _wanted = WantedWindow::new(self, from);
        while !self.is_settled(cache, from) {
            let Ok(turn) = timeout_at(deadline, Arc::clone(&self.turn).lock_owned()).await else { return };
            if self.is_settled(cache, from) || Instant::now() >= deadline {
                return;
            }
            sleep(GATHER).await;
            let generation = cache.generation();
            let Some(wanted) = self.next(cache, generation) else { return };
            let (backfiller, cache) = (Arc::clone(self), cache.clone());
            let attempt = async move {
                let _turn = turn;
                backfiller.attempt(&cache, generation, wanted).await;
            };
            lifecycle::spawn("backfill", attempt).await.ok();
        }
    }

    async fn attempt(&self, cache: &WatchCache, generation: u64, wanted: ResourceVersion) {
        let filled = timeout(ROUND, self.fill(cache, wanted)).await.unwrap_or(Err(FillError::Timeout));
        let Err(error) = filled else { return };
        tracing::info!(resource = %self.source.resource.gvr, from = %wanted, %error, "window not filled backwards");
        let mut state = self.state.lock();
        let is_newer_wanted = state.wanted.last_key_value().is_some_and(|(newest, _)| *newest > wanted);
        let (pause, upto) = match error {
            FillError::Upstream(UpstreamError::Status(status)) if status.code == 410 => {
                let named = forgotten(&status);
                state.expired = (generation, named.max(wanted));
                if !named.is_zero() {
                    return;
                }
                // Newer ones may be forgotten, too: they are not tried one by one.
                (REFUSED, wanted)
            }
            FillError::Cache(BackfillError::Moved) => return,
            // Less is missing after a newer one.
            FillError::Dear => (DEAR, wanted),
            FillError::Cache(BackfillError::Window | BackfillError::Memory(_)) => (REFUSED, wanted),
            // A second one in a row: it is the apiserver, and not the revision.
            FillError::Timeout if is_newer_wanted || state.refused().is_none() => (REFUSED, wanted),
            _ => (REFUSED, ResourceVersion(u64::MAX)),
        };
        state.refused = Some((Instant::now() + pause, upto));
    }

    /// Whether nothing more can be done for a watch from this revision.
    fn is_settled(&self, cache: &WatchCache, from: ResourceVersion) -> bool {
        if cache.window_floor().is_none_or(|floor| floor <= from) {
            return true;
        }
        let generation = cache.generation();
        let state = self.state.lock();
        from <= state.expired(generation).max(state.refused().unwrap_or_default()) || !cache.is_whole()
    }

    /// The wanted revision to try next: the oldest one that the apiserver may still have. After one that was in vain, half of
    /// the newer ones are left out each time, instead of one.
    fn next(&self, cache: &WatchCache, generation: u64) -> Option<ResourceVersion> {
        let floor = cache.window_floor()?;
        let state = self.state.lock();
        let refused = state.refused();
        let after = state.expired(generation).max(refused.unwrap_or_default());
        let left: Vec<_> = state.wanted.keys().copied().filter(|rv| *rv > after && *rv < floor).collect();
        left.get(if refused.is_some() { left.len() / 2 } else { 0 }).copied()
    }

    async fn fill(&self, cache: &WatchCache, from: ResourceVersion) -> Result<(), FillError> {
        let Some(mut backfill) = cache.backfill(from) else { return Ok(()) };
        self.events(&mut backfill).await?;
        self.states(cache, &mut backfill).await?;
        let events = backfill.finish()?;
        tracing::info!(resource = %self.source.resource.gvr, %from, events, "window filled backwards");
        Ok(())
    }

    /// Reads all events after the old revision, up to and including the revision at which the window begins.
    async fn events(&self, backfill: &mut Backfill) -> Result<(), FillError> {
        let (mut at, until) = (backfill.from(), backfill.until());
        let lifetime = Duration::from_secs(WATCH_SECONDS);
        loop {
            let opened = Instant::now();
            let path = self.source.watch_path(at, WATCH_SECONDS);
            let options = self.source.options(RequestVerb::Watch);
            let (upstream, config) = (&self.upstream, &self.config);
            let mut stream = EventStream::open(upstream, &self.source, config, &path, lifetime, options).await?;
            let mut last: Option<ObjectKey> = None;
            while let Some(frame) = stream.next(stream.deadline).await? {
                match frame {
                    WatchFrame::Event { object, .. } if object.rv > until => return Ok(()),
                    // The same event again.
                    WatchFrame::Event { object, .. } if object.rv == at && last.as_ref() == Some(&object.key) => {}
                    WatchFrame::Event { kind, object, .. } => {
                        (at, last) = (object.rv, Some(object.key.clone()));
                        backfill.push(kind, object)?;
                        // No bookmark would follow: a watch gets none at the revision of the last event that it begins with. In
                        // etcd, a revision is one change, but an aggregated server may have its own.
                        if at == until && self.source.resource.origin != Origin::Unknown {
                            return Ok(());
                        }
                    }
                    WatchFrame::Bookmark { rv, .. } if rv >= until => return Ok(()),
                    WatchFrame::Bookmark { rv, .. } => at = at.max(rv),
                    WatchFrame::Error(status) => return Err(UpstreamError::Status(Box::new(status)).into()),
                }
            }
            sleep_until(opened + PACE).await;
        }
    }

    /// Whether a list of all objects costs more than it saves.
    fn is_dear(&self, cache: &WatchCache, from: ResourceVersion) -> bool {
        let is_large = cache.snapshot().is_some_and(|now| now.len() > LARGE);
        is_large && self.state.lock().wanted.range(from..).map(|(_, watches)| watches).sum::<usize>() < MANY
    }

    /// Reads the old states of the objects that have changed since.
    async fn states(&self, cache: &WatchCache, backfill: &mut Backfill) -> Result<(), FillError> {
        let unknown = backfill.unknown();
        if unknown.is_empty() {
            return Ok(());
        }
        let one_by_one: Option<Vec<_>> = unknown.iter().map(|key| self.source.only(key)).collect();
        let sources = match one_by_one.filter(|sources| sources.len() <= BY_NAME) {
            Some(sources) => sources,
            None if self.is_dear(cache, backfill.from()) => return Err(FillError::Dear),
            None => vec![self.source.clone()],
        };
        let options = self.source.options(RequestVerb::List);
        for source in sources {
            let mut path = source.exact_path(backfill.from(), self.config.page_size);
            loop {
                let mut taken = Ok(());
                let page = read_page(&self.upstream, &source, &self.config, &path, &options, |object, _| {
                    taken = backfill.was(object);
                    taken.is_ok()
                });
                let page = page.await?;
                taken?;
                match page {
                    Some(meta) if !meta.continue_token.is_empty() => {
                        path = source.list_path(self.config.page_size, &meta.continue_token);
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }
}

// === impl BackfillState ===

impl BackfillState {
    /// The newest revision that the apiserver no longer has.
    fn expired(&self, generation: u64) -> ResourceVersion {
        if self.expired.0 == generation { self.expired.1 } else { ResourceVersion::ZERO }
    }

    /// The newest revision for which no attempt is made now.
    fn refused(&self) -> Option<ResourceVersion> {
        self.refused.filter(|(until, _)| Instant::now() < *until).map(|(_, rv)| rv)
    }
}

// === impl WantedWindow ===

impl<'a> WantedWindow<'a> {
    fn new(backfiller: &'a Backfiller, from: ResourceVersion) -> Self {
        *backfiller.state.lock().wanted.entry(from).or_default() += 1;
        Self { backfiller, from }
    }
}

impl Drop for WantedWindow<'_> {
    fn drop(&mut self) {
        let mut state = self.backfiller.state.lock();
        if let Some(count) = state.wanted.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                state.wanted.remove(&self.from);
            }
        }
    }
}

/// Returns the newest revision from which a watch can no longer start. The apiserver names the one after it: `too old
/// resource version: 5 (17)`. Returns zero if the message does not contain it.
fn forgotten(status: &Status) -> ResourceVersion {
    let named = status.message.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    let oldest = named.and_then(ResourceVersion::parse).unwrap_or_default();
    ResourceVersion(oldest.get().saturating_sub(1))
}

#[cfg(test)]
#[path = "backfill_tests.rs"]
mod tests;
