//! The task that keeps the file of one cache up to date.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Inner;
use super::header::Identity;
use super::journal::{Beginning, Journal};
use crate::cache::{Recorder, WatchCache};

/// Keeps one file up to date.
#[derive(Debug)]
pub(super) struct Recording {
    inner: Arc<Inner>,
    identity: Identity,
    name: Arc<str>,
    cache: WatchCache,
    /// What was logged last, so that it is logged once.
    failing: Option<io::ErrorKind>,
}

/// Why a file is written anew.
enum Break {
    /// The cache took a whole state, or gave its state up, or the file has become long.
    Anew,
    Failed(io::Error),
}

/// Time between two looks at the events: what a killed process loses of them is read again from the apiserver.
const PERIOD: Duration = Duration::from_secs(1);

/// How often progress without events is recorded.
const PROGRESS: Duration = Duration::from_secs(10);

/// Time before the state is written: the start of a process has more urgent work.
const SETTLE: Duration = Duration::from_secs(2);

/// A state is not written again earlier than this after it was written.
const REST: Duration = Duration::from_secs(30);

/// Time before the next attempt after a failure.
const FAILED: Duration = Duration::from_secs(60);

/// Events that are read at once, under the lock of the cache.
const MOST: usize = 1024;

// === impl Recording ===

impl Recording {
    pub(super) fn new(inner: Arc<Inner>, identity: Identity, name: Arc<str>, cache: WatchCache) -> Self {
        Self { inner, identity, name, cache, failing: None }
    }

    /// Runs until dropped, or until the cache has stopped for good.
    pub(super) async fn run(mut self) {
        loop {
            self.cache.ready_or_stopped().await;
            if !self.cache.is_ready() {
                // The writer is gone.
                return;
            }
            sleep(SETTLE).await;
            let begun = Instant::now();
            let pause = match self.follow().await {
                Break::Anew => REST.saturating_sub(begun.elapsed()),
                Break::Failed(error) => {
                    self.failed(&error);
                    FAILED
                }
            };
            sleep(pause).await;
        }
    }

    /// Writes the state, and then the events that follow it.
    async fn follow(&mut self) -> Break {
        let Some((mut recorder, state)) = self.cache.record() else { return Break::Anew };
        let Some(form) = self.cache.form() else { return Break::Anew };
        let beginning = Beginning { state, form, bookmark_template: self.cache.bookmark_template() };
        let mut journal = match self.begin(beginning).await {
            Ok(journal) => journal,
            Err(error) => return Break::Failed(error),
        };
        if self.failing.take().is_some() {
            tracing::info!(name = &*self.name, "snapshots are written again");
        }
        let mut recorded_at = Instant::now();
        loop {
            let Some(more) = self.append(&mut recorder, &mut journal, &mut recorded_at).await else {
                return Break::Anew;
            };
            match more {
                Err(error) => return Break::Failed(error),
                Ok(true) => {}
                Ok(false) if journal.as_ref().is_none_or(Journal::is_long) => return Break::Anew,
                Ok(false) => sleep(PERIOD).await,
            }
        }
    }

    /// Appends what is new. Returns whether there is more, or `None` if the file must be written anew.
    async fn append(
        &self,
        recorder: &mut Recorder,
        journal: &mut Option<Journal>,
        recorded_at: &mut Instant,
    ) -> Option<io::Result<bool>> {
        let recorded = recorder.read(MOST)?;
        if recorded.events.is_empty() && recorded_at.elapsed() < PROGRESS {
            return Some(Ok(false));
        }
        let more = recorded.rv.is_none();
        *recorded_at = Instant::now();
        let mut open = journal.take()?;
        let append = move || {
            let appended = open.append(&recorded);
            appended.map(|()| open)
        };
        match tokio::task::spawn_blocking(append).await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(open) => {
                *journal = Some(open);
                Some(Ok(more))
            }
            Err(error) => Some(Err(error)),
        }
    }

    async fn begin(&self, beginning: Beginning) -> io::Result<Option<Journal>> {
        let (inner, identity, name) = (Arc::clone(&self.inner), self.identity.clone(), Arc::clone(&self.name));
        let begin = move || Journal::begin(&inner, &identity, &name, &beginning).map(Some);
        tokio::task::spawn_blocking(begin).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    fn failed(&mut self, error: &io::Error) {
        self.inner.metrics.failed.inc();
        if self.failing.replace(error.kind()) != Some(error.kind()) {
            let dir = self.inner.config.dir.display();
            tracing::warn!(name = &*self.name, %dir, %error, "snapshot not written, a restart will list this resource");
        }
    }
}
