//! The read path for a typed interface: a state or a watch of a selection. Nothing is forwarded from here. If the REST
//! side would forward the read, the refusal contains the reason.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::cache::{CacheWatcher, Snapshot, Walk, WatchSpec, WatchStart};
use crate::codec::Form;
use crate::informer::{Informer, Use};
use crate::meta::{Encoding, Gvr, Object, ObjectKey, ResourceVersion, Verb, errors};
use crate::selector::Predicate;

use super::plan::Freshness;
use super::resolved::Resolved;
use super::unserved::Unserved;
use super::{At, ListItems, Reads, Refusal, Rent, Selection, Shareable, Waited, spans};

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFrom {
    State(Freshness),
    After(ResourceVersion),
}

/// A state of a selection.
#[derive(Debug)]
pub struct ReadState {
    pub source: ReadSource,
    pub snapshot: Snapshot,
    predicate: Predicate,
}

/// The informer that answers, and the form of its objects.
#[derive(Clone, Debug)]
pub struct ReadSource {
    informer: Arc<Informer>,
    pub form: Arc<Form>,
}

/// A registered watcher.
#[derive(Debug)]
pub struct OpenWatch {
    pub source: ReadSource,
    pub watcher: CacheWatcher,
    /// The watch must end when this does not hold any more.
    pub proof: Option<Shareable>,
}

/// The parameters of a watch to be registered.
#[derive(Clone, Copy, Debug)]
pub struct WatchTerms {
    pub from: WatchFrom,
    pub max_staleness: Option<Duration>,
    pub bookmark_interval: Duration,
    pub deadline: Instant,
}

// === impl Reads ===

impl Reads {
    /// Returns the state of a selection.
    pub async fn state_of(&self, selection: &Selection, at: At, stale: Option<Duration>) -> Result<ReadState, Refusal> {
        let span = spans::begin("list", &selection.gvr, None);
        let result = self.try_state(selection, at, stale).instrument(span.clone()).await;
        self.counted(&span, result, |state| state.snapshot.rv())
    }

    /// Opens a watch of a selection.
    pub async fn open_watch(&self, selection: &Selection, terms: WatchTerms) -> Result<OpenWatch, Refusal> {
        let span = spans::begin("watch", &selection.gvr, None);
        let result = self.try_open(selection, terms).instrument(span.clone()).await;
        self.counted(&span, result, |open| open.watcher.starts_after())
    }

    /// The version of a resource that the apiserver prefers. `identified`: see [`Selection::identified`].
    pub async fn preferred(&self, group: &str, resource: &str, identified: bool) -> Result<Gvr, Refusal> {
        let found = self.factory.preferred(group, resource).await;
        let found = found.map_err(|error| Refusal::Unreachable(error.to_string()))?;
        found.ok_or_else(|| self.unknown(group, None, identified))
    }

    /// The version of a resource that the apiserver is known to have preferred. Nothing is asked for it.
    pub fn last_preferred(&self, group: &str, resource: &str) -> Option<Gvr> {
        self.factory.last_preferred(group, resource)
    }

    /// Whether the caches of a resource (`deployments.apps`) answer reads; `None` if it has none.
    pub fn is_synced(&self, group_resource: &str) -> Option<bool> {
        let informers = self.factory.informers();
        let mut of_it =
            informers.iter().filter(|informer| informer.key().gvr.group_resource() == group_resource).peekable();
        of_it.peek()?;
        Some(of_it.all(|informer| informer.cache().is_ready()))
    }

    async fn try_state(
        &self,
        selection: &Selection,
        at: At,
        stale: Option<Duration>,
    ) -> Result<(ReadState, Waited), Refusal> {
        let mut read = self.select(selection).await?;
        let (source, waited) = self.source(&mut read, stale).await?;
        let (snapshot, waited_fresh) = self.state(&source.informer, &read, at).await?;
        source.informer.serves();
        Ok((ReadState { source, snapshot, predicate: read.predicate }, waited.max(waited_fresh)))
    }

    async fn try_open(&self, selection: &Selection, terms: WatchTerms) -> Result<(OpenWatch, Waited), Refusal> {
        let mut read = self.select(selection).await?;
        let floor = Arc::clone(&read.floor);
        // The token may be another cache's, or older than what came late.
        let outside_gaps = || match terms.from {
            WatchFrom::After(rv) => floor.gap_around(rv).map_or(Ok(()), |listed| {
                Err(Unserved::Expired(Box::new(errors::expired_watch(rv.get(), listed.get()))))
            }),
            WatchFrom::State(_) => Ok(()),
        };
        outside_gaps()?;
        read.rows = Use { watch: true, initial: matches!(terms.from, WatchFrom::State(_)), ..read.rows };
        let (source, waited) = self.source(&mut read, terms.max_staleness).await?;
        let (start, freshness) = match terms.from {
            WatchFrom::State(freshness) => (WatchStart::State, freshness),
            // The revision may come from another replica and be ahead of ours. A revision that the store never had is
            // recognized separately.
            WatchFrom::After(rv) => (WatchStart::After(rv), Freshness::NotOlderThan(rv)),
        };
        let (snapshot, waited_fresh) = self.fresh(&source.informer, &read, freshness, Verb::Watch).await?;
        read.floor.raise(snapshot.rv());
        if let WatchFrom::After(rv) = terms.from {
            source.informer.reach_back(rv, Duration::MAX).await;
        }
        let spec = WatchSpec {
            predicate: read.predicate.clone(),
            start,
            bookmarks: true,
            initial_end: true,
            deadline: terms.deadline,
        };
        let mut watcher = source.informer.cache().watch(spec).map_err(Unserved::from)?;
        // Again after the start: a gap that comes later ends the watch.
        outside_gaps()?;
        read.is_still_shareable()?;
        watcher.set_steady_bookmarks(terms.bookmark_interval);
        source.informer.serves();
        Ok((OpenWatch { source, watcher, proof: read.proof }, waited.max(waited_fresh)))
    }

    async fn source(&self, read: &mut Resolved, stale: Option<Duration>) -> Result<(ReadSource, Waited), Refusal> {
        let (informer, form, waited) = self.synced(read).await?;
        let source = ReadSource { informer, form };
        match stale {
            Some(most) if source.silence() > most => Err(Refusal::Stale(source.silence())),
            _ => Ok((source, waited)),
        }
    }

    /// Nothing is forwarded for a typed interface: every read that is not served counts as refused.
    fn counted<T>(
        &self,
        span: &Span,
        result: Result<(T, Waited), Refusal>,
        rv: impl FnOnce(&T) -> ResourceVersion,
    ) -> Result<T, Refusal> {
        match &result {
            Ok((answer, waited)) => {
                self.metrics().served(*waited);
                spans::end(span, Ok((*waited, rv(answer))));
            }
            Err(refusal) => {
                self.metrics().refused(refusal.reason());
                spans::end(span, Err(("refuse", refusal.reason())));
            }
        }
        result.map(|(answer, _)| answer)
    }
}

// === impl ReadState ===

impl ReadState {
    /// Returns one object of the selection.
    pub fn get(&self, gvr: &Gvr, namespace: &str, name: &str) -> Result<Arc<Object>, Refusal> {
        // The permission is for what is selected.
        let found = self.snapshot.get(&ObjectKey::new(namespace, name)).filter(|found| self.predicate.matches(found));
        found.cloned().ok_or_else(|| Refusal::Refused(Box::new(errors::not_found(gvr, name))))
    }

    /// The objects, walked while they are written.
    pub fn into_items(self) -> ListItems {
        ListItems::new(Walk::new(self.snapshot, self.predicate, None), None)
    }
}

// === impl ReadSource ===

impl ReadSource {
    /// The time since data last arrived from the apiserver.
    pub fn silence(&self) -> Duration {
        let status = || self.informer.status().since;
        Instant::now().saturating_duration_since(self.informer.heard().unwrap_or_else(status))
    }

    /// Whether its cache has a state.
    pub fn is_ready(&self) -> bool {
        self.informer.cache().is_ready()
    }

    /// Books the bytes of one answer.
    pub fn rent(&self) -> Rent {
        self.informer.rent(false)
    }

    /// Books bytes that were sent.
    pub fn sent(&self, bytes: usize) {
        self.informer.sent(bytes);
    }

    pub fn encoding(&self) -> Encoding {
        self.form.encoding()
    }

    /// The revision up to which the cache is complete.
    pub fn resource_version(&self) -> ResourceVersion {
        self.informer.cache().resource_version()
    }
}
