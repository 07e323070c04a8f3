//! Proves freshness: which revision the store is at, and that a cache has everything up to that revision.
//!
//! A client cannot ask a kube-apiserver how far a watch has come. Bookmarks come about once a minute, and on a type
//! without changes not even then. Two requests together prove it. A consistent list of at most one object returns the
//! store's revision, and makes the apiserver's own cache of the type catch up. A short second watch from our own
//! revision then replays the events in between, if there are any, and ends with a bookmark.
//!
//! That takes a second or two. For a collection of moderate size, a consistent list of its metadata is a faster proof:
//! if the keys and revisions are the same as ours, our state is the store's state at the revision of the list. This
//! says nothing about events that are still on their way, for example those of an object that was created and deleted
//! again. So it is not progress of the stream ([`WatchCache::confirm`]). If the collection is large, only a namespace,
//! or only the objects that a selector selects, is compared.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::comparison::Part;
use super::digest::Digest;
use super::questions::{QUESTION_TIMEOUT, Questions};
use super::shared_store::Word;
use super::single_flight::{Asked, HELD, Pace};
use crate::apiserver::UpstreamError;
use crate::apiserver::client::Upstream;
use crate::apiserver::metadata::{MetadataEvent, MetadataStream};
use crate::apiserver::metrics::RequestVerb;
use crate::apiserver::reader::{Compression, get};
use crate::cache::{Order, Snapshot, WaitError, WatchCache};
use crate::meta::ResourceVersion;
use crate::telemetry::trace::SPANS;
use crate::upstream::source::ListerWatcher;

/// A shorter watch ends without a bookmark, and a longer one gets its bookmark later: the apiserver sends it two
/// seconds before the deadline.
pub(in crate::upstream) const WATCH_SECONDS: u64 = 3;
/// How long after that the watch counts as dead.
const GRACE: Duration = Duration::from_secs(3);
/// How long to wait for events in flight before a watch is opened.
const IN_FLIGHT: Duration = Duration::from_millis(50);
/// After this many watches in a row without a bookmark, none is expected for `BARREN_FOR`.
const BARREN: u32 = 2;
const BARREN_FOR: Duration = Duration::from_secs(300);
/// Minimum time between two watches that prove nothing.
const PACE: Duration = Duration::from_secs(1);
pub(in crate::upstream) const ACCEPT_WATCH: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// A claim that a probe has proved: no object of this selection changed after `from`, up to and including `to`. A cache
/// that has everything up to `from` has everything up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub from: ResourceVersion,
    pub to: ResourceVersion,
    /// A moment before which the proof did not begin: it says nothing about a store that was restored from a backup since.
    pub asked: Order,
}

/// Why a cache could not be proved fresh.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProveError {
    #[error("the proof did not come in time")]
    Timeout,
    #[error("the cache is not ready")]
    NotReady,
    /// The apiserver sends no bookmarks for this resource, because it does not cache it. This is the case for events.
    #[error("the apiserver gives no proof for this resource")]
    Unprovable,
    #[error("our revision has left the apiserver's window")]
    Expired,
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
}

/// Proves the freshness of one informer's cache. Any number of readers share its requests.
pub struct ProgressProbe {
    pub(in crate::upstream) upstream: Upstream,
    pub(in crate::upstream) source: ListerWatcher,
    claims: mpsc::Sender<Progress>,
    questions: Arc<Questions>,
    /// Held by the one reader whose watch is running; the others wait for its result.
    watching: tokio::sync::Mutex<()>,
    barren: Mutex<Barren>,
}

/// The number of watches in a row that ran their full time without a bookmark, and until when no other is tried for
/// that reason.
#[derive(Debug, Default)]
struct Barren {
    watches: u32,
    until: Option<Instant>,
}

/// The result of one short watch.
struct Found {
    /// The last event that it replayed; zero if there was none.
    last_event: ResourceVersion,
    bookmark: ResourceVersion,
}

// === impl ProgressProbe ===

impl ProgressProbe {
    /// `claims` leads to the task that feeds the cache. The channel is bounded, and a claim waits while it is full.
    /// `questions` are shared by all informers that hold these objects.
    pub fn new(
        upstream: Upstream,
        source: ListerWatcher,
        claims: mpsc::Sender<Progress>,
        questions: Arc<Questions>,
    ) -> Self {
        let (watching, barren) = (tokio::sync::Mutex::new(()), Mutex::default());
        Self { upstream, source, claims, questions, watching, barren }
    }

    /// The questions, to share with another informer of these objects.
    pub fn questions(&self) -> &Arc<Questions> {
        &self.questions
    }

    /// Whether nothing is where the apiserver should be.
    pub fn is_away(&self) -> bool {
        self.upstream.away().is_some()
    }

    /// When the apiserver answered last.
    pub fn last_heard(&self) -> Option<Instant> {
        self.questions.heard.get()
    }

    /// Returns the store's revision, asked for at or after `since`. One read runs at a time; all callers that arrive
    /// while it runs share the next one. Two reads begin at least `pace` apart. The store is known to have reached
    /// `seen`.
    ///
    /// # Errors
    /// The error of the read, for all callers that share it.
    pub async fn revision(&self, since: Asked, seen: ResourceVersion, pace: Pace) -> Result<Word, UpstreamError> {
        if let Some(word) = self.last_word().filter(|word| word.asked >= since && word.rv >= seen) {
            return Ok(word);
        }
        let span = self.span("probe", "the store's revision");
        self.ask_revision(seen, pace).instrument(span).await
    }

    /// All resources of one store share the question.
    async fn ask_revision(&self, seen: ResourceVersion, pace: Pace) -> Result<Word, UpstreamError> {
        let Self { upstream, source, questions, .. } = self;
        // Boxed, because most callers share the read of another one and need no memory for a read.
        let read = || Box::pin(questions.read_revision(upstream, source));
        if let Some(store) = questions.store() {
            match store.revisions.ask(pace, HELD, read()).await {
                Ok((rv, asked)) if rv >= seen => {
                    questions.heard.set(Instant::now());
                    return Ok(questions.remember(rv, asked));
                }
                Ok(_) => store.is_refuted(),
                // A question that is refused for one resource may be allowed for another.
                Err(error) if error.code().is_none() => return Err(error),
                Err(_) => {}
            }
        }
        let (rv, asked) = questions.revisions.ask(pace, HELD, read()).await?;
        Ok(questions.remember(rv, asked))
    }

    /// The newest answer of the apiserver about the store's revision.
    pub fn last_word(&self) -> Option<Word> {
        self.questions.last_word()
    }

    /// Reads a digest of the collection, or of a part, asked for at or after `since`, as [`Self::revision`] does. The
    /// returned revision is that of the same read; [`Self::settled`] tells whether it is a proof.
    ///
    /// # Errors
    /// The error of the read, for all callers that share it.
    pub async fn digest(
        &self,
        cache: &WatchCache,
        part: Option<&Part>,
        since: Asked,
        pace: Pace,
    ) -> Result<Word, UpstreamError> {
        let span = self.span("prove", "a digest of the collection");
        self.ask_digest(cache, part, since, pace).instrument(span).await.map(|(_, word)| word)
    }

    async fn ask_digest(
        &self,
        cache: &WatchCache,
        part: Option<&Part>,
        since: Asked,
        pace: Pace,
    ) -> Result<(Arc<Digest>, Word), UpstreamError> {
        let Self { upstream, source, questions, .. } = self;
        let read = Box::pin(questions.read_digest(upstream, source, cache, part));
        // Parts are small.
        let objects = cache.snapshot().filter(|_| part.is_none()).map_or(0, |snapshot| snapshot.len());
        let (digest, asked) = questions.comparisons.of(part).read(since, pace, objects, read).await?;
        let word = questions.remember(digest.rv, asked);
        Ok((digest, word))
    }

    /// Records that a reader has waited for a digest of the whole collection in vain since `begun`.
    pub fn was_late(&self, begun: Instant) {
        self.questions.comparisons.of(None).was_late(begun);
    }

    /// Whether the next digest of the whole collection is expected to be late or unusable, as the last one was.
    pub fn is_late(&self) -> bool {
        self.questions.comparisons.of(None).is_late()
    }

    /// Reads a digest of the whole collection, asked for at or after `since`.
    pub(in crate::upstream) async fn whole(
        &self,
        cache: &WatchCache,
        since: Asked,
    ) -> Result<Arc<Digest>, UpstreamError> {
        let span = self.span("audit", "a digest of the collection");
        self.ask_digest(cache, None, since, Pace::AT_ONCE).instrument(span).await.map(|(digest, _)| digest)
    }

    /// Asks how many objects the store has, by a list of one of them. `None` if the apiserver does not say.
    pub(in crate::upstream) async fn count(&self) -> Result<Option<usize>, UpstreamError> {
        let Self { upstream, source, questions, .. } = self;
        // With a selector, lists do not tell it, and even one of one object costs the apiserver a search.
        let counts = source.field_selector.is_empty() && source.label_selector.is_empty();
        let (nothing, mut items, asked) = (source.nothing(), 0_usize, Asked::now());
        let read = questions.read_keys(upstream, if counts { source } else { &nothing }, 1, |_, _| items += 1);
        let meta = read.instrument(self.span("audit", "the number of objects")).await?;
        questions.remember(meta.rv, asked);
        let more = match meta.continue_token.is_empty() {
            true => Some(0),
            false => meta.remaining_item_count.and_then(|more| usize::try_from(more).ok()),
        };
        Ok(more.filter(|_| counts).map(|more| items.saturating_add(more)))
    }

    /// Returns the newest state if it is at or past `rv`, or if the newest digest of the part, or of everything, shows
    /// that it is the state at such a revision. The store must have reached `rv`. Sends no request.
    pub async fn settled(&self, cache: &WatchCache, part: Option<&Part>, rv: ResourceVersion) -> Option<Snapshot> {
        self.questions.comparisons.of(part).settled(cache, rv).await
    }

    /// Whether the newest digest of the part, or of everything, has a revision at or past `rv`.
    pub fn is_compared(&self, part: Option<&Part>, rv: ResourceVersion) -> bool {
        self.questions.comparisons.of(part).revision() >= rv
    }

    /// The newest revision at which the part, or everything, was proved or compared.
    pub fn proved(&self, cache: &WatchCache, part: Option<&Part>) -> ResourceVersion {
        let comparisons = &self.questions.comparisons;
        let of_part = part.and_then(|part| comparisons.known(part)).map_or(ResourceVersion::ZERO, |it| it.revision());
        cache.newest().max(comparisons.of(None).revision()).max(of_part)
    }

    /// The probability, from 0 to 1, that reading the revision is enough to prove a state that was last proved at
    /// `proved`.
    pub fn odds(&self, proved: ResourceVersion) -> f32 {
        let now = Instant::now();
        let still = match self.questions.store() {
            Some(store) => store.stillness(proved, now),
            None => self.questions.movement.lock().stillness(proved, now),
        };
        self.questions.odds.get(still)
    }

    /// Records that the store had moved, and whether the stream had delivered the change.
    pub fn learn(&self, came: bool) {
        self.questions.odds.learn(came);
    }

    /// Records that the store is at `rv` now, as seen elsewhere. Returns true if it had moved.
    pub fn heard(&self, rv: ResourceVersion) -> bool {
        self.questions.movement.lock().heard(rv, Instant::now())
    }

    /// Passes on what was proved elsewhere. The claim is dropped if the channel is full: it can be made again.
    pub fn claim(&self, proved: Progress) {
        self.claims.try_send(proved).ok();
    }

    /// A watch got a bookmark, so further ones may be tried.
    pub(in crate::upstream) fn got_bookmark(&self) {
        *self.barren.lock() = Barren::default();
    }

    fn span(&self, name: &'static str, what: &'static str) -> Span {
        let resource = || self.source.resource.gvr.group_resource();
        tracing::info_span!(
            target: SPANS,
            "probe",
            otel.name = format!("{name} {}", resource()),
            otel.status_code = Empty,
            informerd.resource = resource(),
            informerd.asks = what,
        )
    }

    /// Waits until the cache has everything up to `rv`, proved by progress of the stream: events, or the bookmark of a
    /// second watch. The store must have reached `rv` already; [`Self::revision`] tells.
    ///
    /// # Errors
    /// The deadline passes, or the apiserver does not answer.
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
            // Events in flight normally arrive within a moment, and then no proof is needed.
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
            let (started, asked) = (Instant::now(), Order::now());
            let found = tokio::select! {
                reached = cache.wait_for(rv, deadline) => {
                    return reached.map(drop).map_err(|_| ProveError::Timeout);
                }
                found = timeout_at(deadline, self.watch_from(from, rv)) => found.map_err(|_| ProveError::Timeout)??,
            };
            self.barren.lock().count(found.is_some(), started);
            let Some(found) = found else {
                // A watch that ended at once must not be followed by another one at once.
                cache.wait_for(rv, deadline.min(started + PACE)).await.ok();
                continue;
            };
            // The events that the probe replayed are also on their way on the main stream. Once the cache has them,
            // nothing is missing up to the bookmark.
            let from = from.max(found.last_event);
            cache.wait_for(from, deadline).await.map_err(|_| ProveError::Timeout)?;
            let claim = Progress { from, to: found.bookmark, asked };
            // The receiver may be busy for a long time, for example with a relist.
            timeout_at(deadline, self.claims.send(claim)).await.map_err(|_| ProveError::Timeout)?.ok();
            let soon = deadline.min(Instant::now() + Duration::from_millis(250));
            cache.wait_for(rv.min(found.bookmark), soon).await.ok();
        }
    }

    /// Watches metadata from `from` until a bookmark at or past `want`; `None` if the watch ends without any bookmark.
    async fn watch_from(&self, from: ResourceVersion, want: ResourceVersion) -> Result<Option<Found>, ProveError> {
        let path = self.source.watch_path(from, WATCH_SECONDS);
        let options = self.source.options(RequestVerb::Probe).header_timeout(QUESTION_TIMEOUT);
        let options = options.on(*self.questions.connection.lock());
        let (head, chunks) = get(&self.upstream, &path, ACCEPT_WATCH, Compression::Identity, &options).await?;
        self.upstream.warnings().learn(&self.source.resource.gvr, head.headers());
        let mut stream = MetadataStream::new(chunks);
        let end = Instant::now() + Duration::from_secs(WATCH_SECONDS) + GRACE;
        let mut last_event = ResourceVersion::ZERO;
        let mut best = None;
        while let Some(event) = stream.next(|| end).await? {
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
        // A bookmark that does not reach `want` is still progress, as long as no event came after it.
        Ok(best.filter(|found: &Found| found.last_event == last_event))
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
