//! The task that keeps the file of one cache up to date.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::journal::Journal;
use super::shared::Snapshot;
use crate::cache::{Recorder, RecorderEnd, WatchCache};

/// Keeps one file up to date.
#[derive(Debug)]
pub(super) struct Recording {
    snapshot: Snapshot,
    cache: WatchCache,
    /// What was logged last, so that it is logged once.
    failing: Option<io::ErrorKind>,
}

/// Time between two looks at the events: what a killed process loses of them is read again from the apiserver.
const PERIOD: Duration = Duration::from_secs(1);

/// How often progress without events is recorded, if there is any.
const PROGRESS: Duration = Duration::from_secs(10);

/// Time before the state is written: the start of a process has more urgent work.
const SETTLE: Duration = Duration::from_secs(2);

/// A state is not written again earlier than this after it was written.
const REST: Duration = Duration::from_secs(30);

/// Until then, events are appended as long as they are at most this many times larger than what the file began with. Those
/// that come after that are not in the file before it is written again.
const LONGEST: u64 = 8;

/// Time before the next attempt after a failure.
const FAILED: Duration = Duration::from_secs(60);

/// Events that are read at once, under the lock of the cache.
const MOST: usize = 1024;

// === impl Recording ===

impl Recording {
    pub(super) fn new(snapshot: Snapshot, cache: WatchCache) -> Self {
        Self { snapshot, cache, failing: None }
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
            let pause = match self.follow(begun).await {
                Ok(()) => REST.saturating_sub(begun.elapsed()),
                Err(error) => {
                    self.failed(&error);
                    FAILED
                }
            };
            sleep(pause).await;
        }
    }

    /// Writes the state, and then the events that follow it. Returns when the file must be written anew.
    async fn follow(&mut self, begun: Instant) -> io::Result<()> {
        let Some((mut journal, mut recorder)) = self.begin().await? else { return Ok(()) };
        if self.failing.take().is_some() {
            tracing::info!(name = &*self.snapshot.name, "snapshots are written again");
        }
        let (mut recorded_at, mut last) = (Instant::now(), None);
        loop {
            let recorded = match recorder.read(MOST) {
                Ok(recorded) => recorded,
                Err(RecorderEnd::Behind | RecorderEnd::Stopped) => break,
                Err(RecorderEnd::Replaced) => {
                    // A restart must not serve it again.
                    drop(journal);
                    let snapshot = self.snapshot.clone();
                    return blocking(move || {
                        snapshot.inner.directory.remove(&snapshot.name);
                        Ok(())
                    })
                    .await;
                }
            };
            let is_behind = recorded.events.len() == MOST;
            // While the apiserver is away, nothing moves, and the file becomes old.
            let has_moved = recorded.rv != last && recorded_at.elapsed() >= PROGRESS;
            if !recorded.events.is_empty() || has_moved {
                (recorded_at, last) = (Instant::now(), recorded.rv);
                journal = blocking(move || journal.append(&recorded).map(|()| journal)).await?;
            }
            if journal.is_long(if begun.elapsed() < REST { LONGEST } else { 1 }) {
                break;
            }
            if !is_behind {
                sleep(PERIOD).await;
            }
        }
        Ok(())
    }

    /// Writes the state. `None` if there is none.
    async fn begin(&self) -> io::Result<Option<(Journal, Recorder)>> {
        let (snapshot, cache) = (self.snapshot.clone(), self.cache.clone());
        let writing = Arc::clone(&snapshot.inner.writing).lock_owned().await;
        blocking(move || {
            // Held to the end of the write, even if this task is gone by then.
            let _writing = writing;
            Journal::begin(&snapshot, &cache)
        })
        .await
    }

    fn failed(&mut self, error: &io::Error) {
        let Snapshot { inner, name, .. } = &self.snapshot;
        inner.metrics.failed.inc();
        if self.failing.replace(error.kind()) != Some(error.kind()) {
            let dir = inner.config.dir.display();
            tracing::warn!(name = &**name, %dir, %error, "snapshot not written, a restart will list this resource");
        }
    }
}

/// Runs what waits for the disk on a thread that may wait.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
