//! Whether a cache may answer, and how readers wait for its progress.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::meta::ResourceVersion;

/// Whether a cache may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It has never been synced.
    Pending {
        since: Instant,
    },
    Ready,
    /// It was ready, but its state was given up.
    NotReady {
        why: Arc<str>,
        since: Instant,
    },
}

/// The readiness and revision that readers may wait for.
#[derive(Debug)]
pub(super) struct Ready {
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Debug)]
struct Progress {
    readiness: Readiness,
    /// Every event up to this revision has been applied.
    rv: ResourceVersion,
    /// The newest revision whose state is known; never below `rv`.
    newest: ResourceVersion,
    /// The writer is gone, so nothing will ever change again.
    stopped: bool,
}

// === impl Readiness ===

impl Readiness {
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

// === impl Ready ===

impl Ready {
    pub(super) fn new() -> Self {
        let readiness = Readiness::Pending { since: Instant::now() };
        let zero = ResourceVersion::ZERO;
        Self { progress: watch::Sender::new(Progress { readiness, rv: zero, newest: zero, stopped: false }) }
    }

    pub(super) fn readiness(&self) -> Readiness {
        self.progress.borrow().readiness.clone()
    }

    /// Whether the writer is gone.
    pub(super) fn is_stopped(&self) -> bool {
        self.progress.borrow().stopped
    }

    pub(super) fn rv(&self) -> ResourceVersion {
        self.progress.borrow().rv
    }

    pub(super) fn newest(&self) -> ResourceVersion {
        self.progress.borrow().newest
    }

    pub(super) fn reached(&self, rv: ResourceVersion) {
        self.progress.send_modify(|progress| {
            progress.rv = rv;
            progress.newest = progress.newest.max(rv);
        });
    }

    /// Records that the state at `rv` is known, although some events up to it may be missing.
    pub(super) fn confirmed(&self, rv: ResourceVersion) {
        self.progress.send_modify(|progress| progress.newest = progress.newest.max(rv));
    }

    /// Records that a whole state was taken. It is the newest known state.
    pub(super) fn ready(&self, rv: ResourceVersion) {
        self.progress.send_modify(|progress| {
            progress.readiness = Readiness::Ready;
            (progress.rv, progress.newest) = (rv, rv);
        });
    }

    pub(super) fn not_ready(&self, why: &str, stopped: bool) {
        self.progress.send_modify(|progress| {
            progress.readiness = Readiness::NotReady { why: why.into(), since: Instant::now() };
            (progress.rv, progress.newest) = (ResourceVersion::ZERO, ResourceVersion::ZERO);
            progress.stopped |= stopped;
        });
    }

    /// Waits until the cache is ready, or has stopped for good.
    pub(super) async fn wait_ready(&self) {
        let mut progress = self.progress.subscribe();
        progress.wait_for(|progress| progress.readiness.is_ready() || progress.stopped).await.ok();
    }

    /// Waits until a state at or past the revision is known, or the cache is not ready.
    pub(super) async fn wait_for(&self, rv: ResourceVersion) {
        let mut progress = self.progress.subscribe();
        progress.wait_for(|progress| progress.newest >= rv || !progress.readiness.is_ready()).await.ok();
    }
}
