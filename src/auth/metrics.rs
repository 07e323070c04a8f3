//! What the room counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::telemetry::lines::LineCounts;

/// Counters since start and gauges of now.
#[derive(Debug, Default)]
pub struct AuthMetrics {
    /// `TokenReviews` sent.
    pub token_reviews: AtomicU64,
    /// `SubjectAccessReviews` sent.
    pub access_reviews: AtomicU64,
    /// Questions whether the pod that a token is bound to is still there.
    pub pod_checks: AtomicU64,
    /// Reviews that brought no verdict.
    pub review_failures: AtomicU64,
    /// Reviews refused because too many waited already.
    pub review_overflows: AtomicU64,
    /// Requests refused because their user had its share of reviews or of rights.
    pub user_overflows: AtomicU64,
    /// Rights that open streams rest on.
    pub rights_held: AtomicU64,
    /// Time that reviews took once it was their turn, in nanoseconds.
    pub review_nanos: AtomicU64,
    /// Reviews under way.
    pub reviews_running: AtomicU64,
    /// The most reviews there ever were under way.
    pub reviews_peak: AtomicU64,
    /// Requests waiting for their review's turn.
    pub reviews_waiting: AtomicU64,
    /// Reads allowed.
    pub allowed: AtomicU64,
    /// Reads refused with 403.
    pub denied: AtomicU64,
    /// Requests refused with 401.
    pub unauthenticated: AtomicU64,
    /// Requests that could not be decided: refused, or forwarded with the client's own credentials.
    pub undecided: AtomicU64,
    /// Times decisions were forgotten because rights have changed.
    pub flushes: AtomicU64,
    /// Open streams ended because the right to them was gone.
    pub streams_revoked: AtomicU64,
    /// Audit events.
    pub audit: Arc<LineCounts>,
    /// Watches for changed rights that are open and up to date.
    pub watches_live: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Raises a gauge while it lives.
pub(super) struct Raised<'a>(&'a AtomicU64);

/// Adds the time it lived, also that of a review nobody waited for any longer.
pub(super) struct Taken<'a> {
    pub(super) since: Instant,
    pub(super) nanos: &'a AtomicU64,
}

// === impl Taken ===

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let nanos = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

// === impl Raised ===

impl<'a> Raised<'a> {
    /// Also tells the gauge's value with this one.
    pub(super) fn new(gauge: &'a AtomicU64) -> (Self, u64) {
        let now = gauge.fetch_add(1, Ordering::Relaxed) + 1;
        (Self(gauge), now)
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
