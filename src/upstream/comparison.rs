//! Proof by comparison: a collection, or one namespace of it, is read as metadata, at one revision of the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::digest::Digest;
use super::error::UpstreamError;
use super::turns::Turns;
use crate::cache::{Snapshot, WatchCache};
use crate::meta::{ResourceVersion, Scope};

/// Namespaces whose digests are kept. Beyond that, those that nobody reads at the moment are let go.
const MOST_PARTS: usize = 256;

/// The digests of one collection, for all caches that hold it in whichever encoding.
#[derive(Debug)]
pub(super) struct Comparisons {
    whole: Compared,
    parts: Mutex<HashMap<Arc<str>, Arc<Compared>>>,
}

/// The digests of a collection or of one namespace.
#[derive(Debug)]
pub(super) struct Compared {
    scope: Scope,
    turns: Turns<Arc<Digest>>,
    /// The newest that was read, and when it was asked for.
    newest: Mutex<Option<(Arc<Digest>, Instant)>>,
}

// === impl Comparisons ===

impl Comparisons {
    pub(super) fn new() -> Self {
        Self { whole: Compared::new(None), parts: Mutex::default() }
    }

    /// Runs `read` with the digests of a namespace, or of everything.
    pub(super) fn of(&self, namespace: Option<&Arc<str>>) -> Part<'_> {
        let Some(namespace) = namespace else { return Part::Whole(&self.whole) };
        let mut parts = self.parts.lock();
        if let Some(part) = parts.get(namespace) {
            return Part::Namespace(part.clone());
        }
        if parts.len() >= MOST_PARTS {
            parts.retain(|_, part| Arc::strong_count(part) > 1);
        }
        let part = Arc::new(Compared::new(Some(namespace.clone())));
        parts.insert(namespace.clone(), part.clone());
        Part::Namespace(part)
    }
}

/// Borrowed or shared digests.
pub(super) enum Part<'a> {
    Whole(&'a Compared),
    Namespace(Arc<Compared>),
}

impl std::ops::Deref for Part<'_> {
    type Target = Compared;

    fn deref(&self) -> &Compared {
        match self {
            Self::Whole(compared) => compared,
            Self::Namespace(compared) => compared,
        }
    }
}

// === impl Compared ===

impl Compared {
    fn new(namespace: Option<Arc<str>>) -> Self {
        let scope = Scope { namespace, name: None };
        Self { scope, turns: Turns::new(), newest: Mutex::default() }
    }

    /// A digest that was asked for at or after `since`, and when; one is read if there is none.
    ///
    /// # Errors
    /// Those of the read.
    pub(super) async fn read(
        &self,
        since: Instant,
        pace: Duration,
        read: impl Future<Output = Result<Digest, UpstreamError>>,
    ) -> Result<(Arc<Digest>, Instant), UpstreamError> {
        if let Some(kept) = self.newest.lock().clone().filter(|(_, asked)| *asked >= since) {
            return Ok(kept);
        }
        let answer = self.turns.ask(pace, async { read.await.map(Arc::new) }).await?;
        let (digest, asked) = (answer.value, answer.asked);
        let mut newest = self.newest.lock();
        if newest.as_ref().is_none_or(|(kept, _)| kept.asked < digest.asked) {
            *newest = Some((digest.clone(), asked));
        }
        Ok((digest, asked))
    }

    pub(super) fn reaches(&self, rv: ResourceVersion) -> bool {
        self.newest.lock().as_ref().is_some_and(|(digest, _)| digest.rv >= rv)
    }

    /// The newest state, if it is at or past `rv`, or if the newest digest is of such a revision and the state holds
    /// exactly its objects. Takes no time and asks nobody.
    ///
    /// The state of a whole collection is then confirmed for all readers. That of a namespace is only given out, as of the
    /// digest's revision: it says nothing of the other namespaces.
    pub(super) fn settled(&self, cache: &WatchCache, rv: ResourceVersion) -> Option<Snapshot> {
        let newest = self.newest.lock().as_ref().map(|(digest, _)| digest.clone());
        let digest = newest.filter(|digest| digest.rv >= rv);
        loop {
            let snapshot = cache.snapshot()?;
            if snapshot.rv() >= rv {
                return Some(snapshot);
            }
            let digest = digest.as_ref()?;
            if digest.asked < cache.began() || !digest.is_of(&snapshot, &self.scope) {
                return None;
            }
            if self.scope.namespace.is_some() {
                return Some(snapshot.seen_at(digest.rv));
            }
            // If it is not the newest any more, the newest is looked at.
            cache.confirm(&snapshot, digest.rv, digest.asked);
        }
    }
}
