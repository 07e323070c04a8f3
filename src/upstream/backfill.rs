//! Reads what happened before a cache's window began, for watches that come back to a daemon that was restarted.
//!
//! A second watch from the revision of the oldest that waits tells the events, up to where the window begins: an event
//! or a bookmark from beyond shows that none is missing. It does not tell what the objects were before, by which the
//! edges of a selection are told: an exact list at that revision does, of the few that changed, or of all. The cache
//! compares what this comes to with the state that it was given, and takes it only if that is the same.
//!
//! Both are requests like the reflector's own, of the same objects and under the same identity.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::client::Upstream;
use super::error::UpstreamError;
use super::metrics::RequestVerb;
use super::reflector::ReflectorConfig;
use super::reflector::stream::{EventStream, read_page};
use super::source::ListerWatcher;
use crate::cache::{Backfill, BackfillError, WatchCache};
use crate::codec::json::WatchFrame;
use crate::meta::{ObjectKey, ResourceVersion, Status};

/// Fills the window of one informer's cache backwards. Any number of watches share its requests.
pub struct Backfiller {
    upstream: Upstream,
    source: ListerWatcher,
    config: ReflectorConfig,
    state: Mutex<State>,
    /// Held by the one whose requests are running; the others wait for what they bring.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// From where watches wait to go on, and how many.
    wanted: BTreeMap<ResourceVersion, usize>,
    /// What the apiserver no longer has: the cache's generation, and the newest such revision.
    expired: (u64, ResourceVersion),
    /// Nothing is tried before.
    refused_until: Option<Instant>,
}

/// One that waits.
struct Wanted<'a> {
    backfiller: &'a Backfiller,
    from: ResourceVersion,
}

#[derive(Debug, thiserror::Error)]
enum FillError {
    #[error("not in {ROUND:?}")]
    Timeout,
    #[error(transparent)]
    Cache(#[from] BackfillError),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// The bookmark comes two seconds before a watch's end, as in [`super::progress`].
const WATCH_SECONDS: u64 = 3;
/// Watches that tell nothing new are no closer together.
const PACE: Duration = Duration::from_secs(1);
/// How long others are waited for: clients come back at once, each from its own revision.
const GATHER: Duration = Duration::from_millis(50);
/// For all requests of one attempt.
const ROUND: Duration = Duration::from_secs(8);
/// For a turn.
const PATIENCE: Duration = Duration::from_secs(12);
/// After an attempt that failed for another reason than its revision's age.
const REFUSED: Duration = Duration::from_secs(30);
/// Up to so many objects are asked for one by one, and more by a list of all.
const BY_NAME: usize = 32;

// === impl Backfiller ===

impl Backfiller {
    pub fn new(upstream: Upstream, source: ListerWatcher, config: ReflectorConfig) -> Self {
        Self { upstream, source, config, state: Mutex::default(), turn: tokio::sync::Mutex::new(()) }
    }

    /// Fills the window back to `from`, if that can be done exactly; whoever wants another revision meanwhile is
    /// thought of. Takes 20 seconds at most.
    pub async fn reach(&self, cache: &WatchCache, from: ResourceVersion) {
        // Objects that expire go many at one revision, and there are no bookmarks of them.
        if self.source.resource.gvr.is_events() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let _wanted = Wanted::new(self, from);
        while !self.is_settled(cache, from) {
            let Ok(_turn) = timeout_at(deadline, self.turn.lock()).await else { return };
            if self.is_settled(cache, from) || Instant::now() >= deadline {
                return;
            }
            sleep(GATHER).await;
            let generation = cache.generation();
            let Some(oldest) = self.oldest(generation) else { return };
            let filled = timeout(ROUND, self.fill(cache, oldest)).await.unwrap_or(Err(FillError::Timeout));
            if let Err(error) = filled {
                tracing::info!(resource = %self.source.resource.gvr, from = %oldest, %error, "window not filled backwards");
                let mut state = self.state.lock();
                match error {
                    FillError::Upstream(UpstreamError::Status(status)) if status.code == 410 => {
                        state.expired = (generation, forgotten(&status).max(oldest));
                    }
                    FillError::Cache(BackfillError::Moved) => {}
                    _ => state.refused_until = Some(Instant::now() + REFUSED),
                }
            }
        }
    }

    /// Whether there is nothing (more) to be done for a watch from there.
    fn is_settled(&self, cache: &WatchCache, from: ResourceVersion) -> bool {
        if cache.window_floor().is_none_or(|floor| floor <= from) {
            return true;
        }
        let state = self.state.lock();
        let expired = state.expired.0 == cache.generation() && state.expired.1 >= from;
        expired || state.refused_until.is_some_and(|until| Instant::now() < until) || !cache.is_whole()
    }

    /// The oldest revision wanted that the apiserver may still have.
    fn oldest(&self, generation: u64) -> Option<ResourceVersion> {
        let state = self.state.lock();
        let expired = if state.expired.0 == generation { state.expired.1 } else { ResourceVersion::ZERO };
        state.wanted.keys().copied().find(|rv| *rv > expired)
    }

    async fn fill(&self, cache: &WatchCache, from: ResourceVersion) -> Result<(), FillError> {
        let Some(mut backfill) = cache.backfill(from) else { return Ok(()) };
        self.events(&mut backfill).await?;
        self.states(&mut backfill).await?;
        let events = backfill.finish()?;
        tracing::info!(resource = %self.source.resource.gvr, %from, events, "window filled backwards");
        Ok(())
    }

    /// All events after the old revision, up to and with the one at which the window begins.
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
                    // The same event once more.
                    WatchFrame::Event { object, .. } if object.rv == at && last.as_ref() == Some(&object.key) => {}
                    WatchFrame::Event { kind, object, .. } => {
                        (at, last) = (object.rv, Some(object.key.clone()));
                        backfill.push(kind, object)?;
                    }
                    WatchFrame::Bookmark { rv, .. } if rv >= until => return Ok(()),
                    WatchFrame::Bookmark { rv, .. } => at = at.max(rv),
                    WatchFrame::Error(status) => return Err(UpstreamError::Status(Box::new(status)).into()),
                }
            }
            sleep_until(opened + PACE).await;
        }
    }

    /// What the objects were that have changed since.
    async fn states(&self, backfill: &mut Backfill) -> Result<(), FillError> {
        let unknown = backfill.unknown();
        if unknown.is_empty() {
            return Ok(());
        }
        let one_by_one: Option<Vec<_>> = unknown.iter().map(|key| self.source.only(key)).collect();
        let sources =
            one_by_one.filter(|sources| sources.len() <= BY_NAME).unwrap_or_else(|| vec![self.source.clone()]);
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

impl fmt::Debug for Backfiller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backfiller").field("source", &self.source).finish_non_exhaustive()
    }
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    fn new(backfiller: &'a Backfiller, from: ResourceVersion) -> Self {
        *backfiller.state.lock().wanted.entry(from).or_default() += 1;
        Self { backfiller, from }
    }
}

impl Drop for Wanted<'_> {
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

/// The newest revision from which a watch cannot begin, as the apiserver names the next one: `too old resource version: 5
/// (17)`. Zero where it does not.
fn forgotten(status: &Status) -> ResourceVersion {
    let named = status.message.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    let oldest = named.and_then(ResourceVersion::parse).unwrap_or_default();
    ResourceVersion(oldest.get().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_410_tells_what_is_forgotten() {
        let at = |message: &str| forgotten(&Status::failure(410, "Expired", message.to_owned())).get();
        assert_eq!(at("too old resource version: 5 (17)"), 16);
        assert_eq!(at("The resourceVersion for the provided list is too old."), 0);
        assert_eq!(at("too old resource version: 5 (x)"), 0);
    }
}
