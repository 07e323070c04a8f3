//! Proof of freshness: which revision the store is at, and that a cache has everything up to there.
//!
//! A client cannot ask a kube-apiserver how far a watch has come: bookmarks come about every minute, and on a type
//! where nothing happens not even then. Two requests together prove it. A consistent list of one object tells the
//! store's revision, and makes the apiserver's own cache of the type catch up. A short second watch from our own
//! revision then replays what lies between, if anything does, and is ended by a bookmark.
//!
//! That takes a second or two. A collection of moderate size is proved at once by a consistent list of its metadata: if
//! the keys and revisions are ours, then our state is the store's at the list's revision. It says nothing of events on their
//! way, of an object that was made and deleted again, so it is no progress of the stream ([`WatchCache::confirm`]). A
//! namespace, or what a selector selects, is compared alone where the collection is large.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::client::Upstream;
use super::comparison::Part;
use super::digest::Digest;
use super::error::UpstreamError;
use super::metadata::{MetadataEvent, MetadataStream};
use super::metrics::RequestVerb;
use super::questions::{Questions, Word};
use super::reader::{Compression, get};
use super::single_flight::Pace;
use super::source::ListerWatcher;
use crate::cache::{Snapshot, WaitError, WatchCache};
use crate::meta::ResourceVersion;
use crate::telemetry::trace::SPANS;

/// Less gives no bookmark before the watch is over, more gives it later: the apiserver sends it two seconds before
/// the deadline.
const WATCH_SECONDS: u64 = 3;
/// Beyond that, before the watch counts as dead.
const GRACE: Duration = Duration::from_secs(3);
/// For the head of an answer that is due at once.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what is in flight is waited for before a watch is opened.
const IN_FLIGHT: Duration = Duration::from_millis(50);
/// So many watches in a row must give no bookmark before none is expected, for so long.
const BARREN: u32 = 2;
const BARREN_FOR: Duration = Duration::from_secs(300);
/// Watches that prove nothing are no closer together.
const PACE: Duration = Duration::from_secs(1);
const ACCEPT_WATCH: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A claim that a probe has proved: nothing of this selection happened after `from`, up to and with `to`. Whoever has
/// everything up to `from` has everything up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub from: ResourceVersion,
    pub to: ResourceVersion,
}

/// Why a cache was not proved to be fresh.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProveError {
    #[error("the proof did not come in time")]
    Timeout,
    #[error("the cache is not ready")]
    NotReady,
    /// The apiserver sends no bookmarks for this resource: it is not cached there, as events are not.
    #[error("the apiserver gives no proof for this resource")]
    Unprovable,
    #[error("our revision has left the apiserver's window")]
    Expired,
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// Proves the freshness of one informer's cache. Any number of readers share its requests.
pub struct ProgressProbe {
    pub(super) upstream: Upstream,
    pub(super) source: ListerWatcher,
    claims: mpsc::Sender<Progress>,
    questions: Arc<Questions>,
    /// Held by the one reader whose watch is running; the others wait for what it finds.
    watching: tokio::sync::Mutex<()>,
    barren: Mutex<Barren>,
}

/// Watches in a row that lived their time and gave no bookmark, and until when no other is tried because of them.
#[derive(Debug, Default)]
struct Barren {
    watches: u32,
    until: Option<Instant>,
}

/// What one short watch found.
struct Found {
    /// The last event it replayed; zero if none.
    last_event: ResourceVersion,
    bookmark: ResourceVersion,
}

// === impl ProgressProbe ===

impl ProgressProbe {
    /// `claims` is where the one who feeds the cache takes what was proved; it is bounded, and a claim that finds it
    /// full is waited for. `questions` are those of all who hold these objects.
    pub fn new(
        upstream: Upstream,
        source: ListerWatcher,
        claims: mpsc::Sender<Progress>,
        questions: Arc<Questions>,
    ) -> Self {
        let (watching, barren) = (tokio::sync::Mutex::new(()), Mutex::default());
        Self { upstream, source, claims, questions, watching, barren }
    }

    /// For one more informer of these objects.
    pub fn questions(&self) -> &Arc<Questions> {
        &self.questions
    }

    /// When the apiserver answered last.
    pub fn last_heard(&self) -> Option<Instant> {
        self.questions.last_heard()
    }

    /// The store's revision, asked for at or after `since`. One read runs at a time; all who come while it runs share
    /// the next. Two begin no closer together than `pace`. The store is known to have reached `seen`.
    ///
    /// # Errors
    /// As of the read, for all who share it.
    pub async fn revision(&self, since: Instant, seen: ResourceVersion, pace: Pace) -> Result<Word, UpstreamError> {
        if let Some(word) = self.last_word().filter(|word| word.asked >= since && word.rv >= seen) {
            return Ok(word);
        }
        let span = self.span("probe", "the store's revision");
        self.questions.revision(&self.upstream, &self.source, seen, pace).instrument(span).await
    }

    /// The newest that the apiserver said of the store's revision.
    pub fn last_word(&self) -> Option<Word> {
        self.questions.last_word()
    }

    /// Reads a digest of the collection, or of a part, asked for at or after `since`, as by [`Self::revision`]. The
    /// word is of that very read; [`Self::settled`] tells whether it is a proof.
    ///
    /// # Errors
    /// As of the read, for all who share it.
    pub async fn digest(
        &self,
        cache: &WatchCache,
        part: Option<&Part>,
        since: Instant,
        pace: Pace,
    ) -> Result<Word, UpstreamError> {
        let span = self.span("prove", "a digest of the collection");
        let asked = self.questions.digest(&self.upstream, &self.source, cache, part, since, pace);
        asked.instrument(span).await
    }

    /// A digest of everything, asked for at or after `since`.
    pub(super) async fn whole(&self, cache: &WatchCache, since: Instant) -> Result<Arc<Digest>, UpstreamError> {
        let span = self.span("audit", "a digest of the collection");
        self.questions.whole(&self.upstream, &self.source, cache, since).instrument(span).await
    }

    /// The newest state, if it is at or past `rv`, or if the newest digest of the part, or of everything, shows it to
    /// be that of such a revision. The store must have reached `rv`. Asks nobody.
    pub async fn settled(&self, cache: &WatchCache, part: Option<&Part>, rv: ResourceVersion) -> Option<Snapshot> {
        self.questions.digests(part).settled(cache, rv).await
    }

    /// Whether the newest digest of the part, or of everything, is of a revision at or past `rv`.
    pub fn is_compared(&self, part: Option<&Part>, rv: ResourceVersion) -> bool {
        self.questions.digests(part).revision() >= rv
    }

    /// The newest revision at which the part, or everything, was proved or compared.
    pub fn proved(&self, cache: &WatchCache, part: Option<&Part>) -> ResourceVersion {
        self.questions.proved(cache, part)
    }

    /// How likely a revision is to be enough for a state that was proved at `proved`, from 0 to 1.
    pub fn odds(&self, proved: ResourceVersion) -> f32 {
        self.questions.odds(proved)
    }

    /// The store had moved; whether the stream had brought what moved it.
    pub fn learn(&self, came: bool) {
        self.questions.odds.learn(came);
    }

    /// The store was at `rv` just now, as was seen elsewhere. True if it had moved.
    pub fn heard(&self, rv: ResourceVersion) -> bool {
        self.questions.heard(rv)
    }

    /// Hands on what was proved elsewhere. A claim that finds the way full is dropped: it can be made again.
    pub fn claim(&self, proved: Progress) {
        self.claims.try_send(proved).ok();
    }

    fn span(&self, name: &'static str, what: &'static str) -> Span {
        let span = tracing::info_span!(
            target: SPANS,
            "probe",
            otel.name = Empty,
            otel.status_code = Empty,
            informerd.resource = Empty,
            informerd.asks = what,
        );
        if !span.is_disabled() {
            let resource = self.source.resource.gvr.group_resource();
            span.record("otel.name", format!("{name} {resource}"));
            span.record("informerd.resource", resource);
        }
        span
    }

    /// Waits until the cache has everything up to `rv`, by what is progress of the stream: events, or the bookmark of a
    /// second watch. The store must have reached `rv` already, which [`Self::revision`] tells.
    ///
    /// # Errors
    /// When the deadline passes, or the apiserver does not answer.
    pub async fn prove_by_watch(
        &self,
        cache: &WatchCache,
        rv: ResourceVersion,
        deadline: Instant,
    ) -> Result<(), ProveError> {
        let span = self.span("prove", "the cache's freshness");
        let proved = self.watch_until(cache, rv, deadline).instrument(span.clone()).await;
        if proved.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        proved
    }

    async fn watch_until(&self, cache: &WatchCache, rv: ResourceVersion, deadline: Instant) -> Result<(), ProveError> {
        loop {
            // What is on its way arrives within a moment as a rule, and needs no proof.
            let moment = deadline.min(Instant::now() + IN_FLIGHT);
            match cache.wait_for(rv, moment).await {
                Ok(_) => return Ok(()),
                Err(_) if Instant::now() >= deadline => return Err(ProveError::Timeout),
                Err(WaitError::NotReady) => return Err(ProveError::NotReady),
                Err(WaitError::Timeout { .. }) => {}
            }
            if self.barren.lock().until.is_some_and(|until| Instant::now() < until) {
                return Err(ProveError::Unprovable);
            }
            let _turn = tokio::select! {
                reached = cache.wait_for(rv, deadline) => {
                    return reached.map(drop).map_err(|_| ProveError::Timeout);
                }
                turn = self.watching.lock() => turn,
            };
            let from = cache.resource_version();
            if from >= rv {
                return Ok(());
            }
            let started = Instant::now();
            let found = tokio::select! {
                reached = cache.wait_for(rv, deadline) => {
                    return reached.map(drop).map_err(|_| ProveError::Timeout);
                }
                found = timeout_at(deadline, self.watch_from(from, rv)) => found.map_err(|_| ProveError::Timeout)??,
            };
            self.barren.lock().count(found.is_some(), started);
            let Some(found) = found else {
                // One that ended at once must not be followed by the next at once.
                cache.wait_for(rv, deadline.min(started + PACE)).await.ok();
                continue;
            };
            // What the probe replayed is on its way on the main stream, too. Once it is there, nothing is missing up
            // to the bookmark.
            let from = from.max(found.last_event);
            cache.wait_for(from, deadline).await.map_err(|_| ProveError::Timeout)?;
            let claim = Progress { from, to: found.bookmark };
            // The one who takes it may be away for long, listing anew.
            timeout_at(deadline, self.claims.send(claim)).await.map_err(|_| ProveError::Timeout)?.ok();
            let soon = deadline.min(Instant::now() + Duration::from_millis(250));
            cache.wait_for(rv.min(found.bookmark), soon).await.ok();
        }
    }

    /// A watch of metadata from `from` until a bookmark at or past `want`; `None` if it ends without any.
    async fn watch_from(&self, from: ResourceVersion, want: ResourceVersion) -> Result<Option<Found>, ProveError> {
        let path = self.source.watch_path(from, WATCH_SECONDS);
        let options = self.source.options(RequestVerb::Probe).header_timeout(HEAD_TIMEOUT);
        let options = options.on(self.questions.connection());
        let (head, chunks) = get(&self.upstream, &path, ACCEPT_WATCH, Compression::Identity, &options).await?;
        self.upstream.warnings().learn(&self.source.resource.gvr, head.headers());
        let mut stream = MetadataStream::new(chunks);
        let end = Instant::now() + Duration::from_secs(WATCH_SECONDS) + GRACE;
        let mut last_event = ResourceVersion::ZERO;
        let mut best = None;
        while let Some(event) = stream.next(end).await? {
            match event {
                MetadataEvent::Changed { metadata, .. } => last_event = last_event.max(metadata.rv()?),
                MetadataEvent::Bookmark(rv) => {
                    best = Some(Found { last_event, bookmark: rv });
                    if rv >= want {
                        return Ok(best);
                    }
                }
                MetadataEvent::Error(status) if status.code == 410 => return Err(ProveError::Expired),
                MetadataEvent::Error(status) => return Err(UpstreamError::Status(status).into()),
            }
        }
        // A bookmark that does not reach far enough is progress, as long as no event came behind it.
        Ok(best.filter(|found: &Found| found.last_event == last_event))
    }
}

impl fmt::Debug for ProgressProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressProbe").field("source", &self.source).finish_non_exhaustive()
    }
}

// === impl Barren ===

impl Barren {
    fn count(&mut self, bookmark: bool, started: Instant) {
        if bookmark {
            *self = Self::default();
        } else if started.elapsed() + PACE >= Duration::from_secs(WATCH_SECONDS) {
            self.watches += 1;
            if self.watches >= BARREN {
                *self = Self { watches: 0, until: Some(Instant::now() + BARREN_FOR) };
            }
        }
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
