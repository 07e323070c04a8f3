//! Tracks whether the apiserver answers. The result of every request to it is reported here, whatever its source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::away::Misses;
use crate::error::UpstreamError;

/// The outcome of the requests so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether the last request got any answer, even an error status. False before the first one.
    pub reachable: bool,
    /// Since when `reachable` has this value.
    pub since: Instant,
    /// Why the last request got no answer; `None` while the apiserver answers, and before the first request.
    pub error: Option<Arc<str>>,
}

/// Stores the health and announces changes.
#[derive(Debug)]
pub(super) struct Keeper {
    health: Mutex<Health>,
    /// Whether there was any answer since the process started, from whomever.
    pub(super) heard: AtomicBool,
    /// Counts how often the apiserver answered again after an outage, and how often there were new credentials.
    pub(super) recoveries: watch::Sender<u64>,
    /// Whether the client looks for the apiserver: it does not answer, or a connection to it broke or takes long to be
    /// established.
    pub(super) sought: watch::Sender<bool>,
    /// Counts how often the apiserver answered again while the client looked for it. Dials that were waiting then are
    /// tried again.
    pub(super) found: watch::Sender<u64>,
    pub(super) misses: Misses,
    /// Whether it is still to be logged that the apiserver does not answer, and when it last was.
    warned: Mutex<(bool, Option<Instant>)>,
}

/// Where every other request is answered, the log would be full of it.
const WARN_AGAIN: Duration = Duration::from_secs(60);
/// An error's text is cut to this many bytes.
const LONGEST_ERROR: usize = 512;

// === impl Keeper ===

impl Keeper {
    pub(super) fn new() -> Self {
        let health = Health { reachable: false, since: Instant::now(), error: None };
        let (recoveries, sought, found) = (watch::Sender::new(0), watch::Sender::new(false), watch::Sender::new(0));
        let (misses, warned) = (Misses::default(), Mutex::default());
        Self { health: Mutex::new(health), heard: AtomicBool::new(false), recoveries, sought, found, misses, warned }
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().clone()
    }

    pub(super) fn is_reachable(&self) -> bool {
        self.health.lock().reachable
    }

    /// Reports that a connection broke or takes long to be established: the apiserver may no longer answer.
    pub(super) fn doubt(&self) {
        self.seek(true);
    }

    fn seek(&self, seek: bool) {
        if *self.sought.borrow() != seek && self.sought.send_replace(seek) != seek && !seek {
            self.found.send_modify(|count| *count += 1);
        }
    }

    /// Records the outcome of a request.
    pub(super) fn learn<T>(&self, result: &Result<T, UpstreamError>, authority: &str) {
        if result.as_ref().err().is_none_or(UpstreamError::is_of_tls_peer) {
            self.heard.store(true, Ordering::Release);
            self.misses.answered();
        }
        match result {
            Ok(_) => self.answered(authority),
            Err(error) if error.is_unreachable() => self.unanswered(error, authority),
            Err(_) => {}
        }
    }

    fn answered(&self, authority: &str) {
        self.seek(false);
        let mut health = self.health.lock();
        if health.reachable {
            return;
        }
        *health = Health { reachable: true, since: Instant::now(), error: None };
        drop(health);
        self.warned.lock().0 = false;
        tracing::info!(apiserver = authority, "apiserver answers");
        self.recoveries.send_modify(|count| *count += 1);
    }

    fn unanswered(&self, error: &UpstreamError, authority: &str) {
        let text = cut(error.to_string());
        let mut health = self.health.lock();
        let was_reachable = std::mem::replace(&mut health.reachable, false);
        if was_reachable || health.error.is_none() {
            health.since = Instant::now();
        }
        health.error = Some(text.into());
        drop(health);
        self.seek(true);
        if self.warns(was_reachable) {
            tracing::warn!(apiserver = authority, %error, "apiserver does not answer");
        }
    }

    /// Whether it is logged now that the apiserver does not answer: once for each time that it has stopped, and later if another
    /// time was logged a moment ago. One that lasts is always logged.
    fn warns(&self, has_stopped: bool) -> bool {
        let mut warned = self.warned.lock();
        let (is_due, last) = (warned.0 || has_stopped, warned.1);
        let warns = is_due && last.is_none_or(|at| at.elapsed() >= WARN_AGAIN);
        *warned = if warns { (false, Some(Instant::now())) } else { (is_due, last) };
        warns
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        let end = (0..=LONGEST_ERROR).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Cause;

    fn broken(text: &str) -> Result<(), UpstreamError> {
        Err(UpstreamError::Request(Cause::new(text.to_owned())))
    }

    #[test]
    fn an_answer_is_remembered_and_silence_is_none() {
        let keeper = Keeper::new();
        keeper.learn(&broken("silence"), "a");
        keeper.learn(&Err::<(), _>(UpstreamError::Busy), "a");
        assert!(!keeper.heard.load(Ordering::Acquire));
        keeper.learn(&Ok(()), "a");
        keeper.learn(&broken("silence again"), "a");
        assert!(keeper.heard.load(Ordering::Acquire));
        let stranger = Keeper::new();
        let cause = Cause::new(std::io::Error::other(rustls::Error::UnsupportedNameType));
        stranger.learn(&Err::<(), _>(UpstreamError::Tls { authority: "a".into(), cause }), "a");
        assert!(stranger.heard.load(Ordering::Acquire), "it is not the apiserver, but somebody answers");
    }

    #[tokio::test(start_paused = true)]
    async fn each_outage_that_lasts_is_logged_and_of_short_ones_one_a_minute() {
        let keeper = Keeper::new();
        let warned = [false, true, false, true].map(|has_stopped| keeper.warns(has_stopped));
        assert_eq!(warned, [false, true, false, false]);
        tokio::time::advance(WARN_AGAIN).await;
        assert_eq!([keeper.warns(false), keeper.warns(false), keeper.warns(true)], [true, false, false]);
        keeper.learn(&Ok(()), "a");
        tokio::time::advance(WARN_AGAIN).await;
        assert!(!keeper.warns(false), "that one is over");
    }

    #[tokio::test(start_paused = true)]
    async fn tells_since_when_the_apiserver_does_not_answer_and_why() {
        let keeper = Keeper::new();
        let mut recoveries = keeper.recoveries.subscribe();
        let first = keeper.health();
        assert_eq!((first.reachable, first.error), (false, None), "nothing was asked yet");
        tokio::time::advance(Duration::from_secs(1)).await;
        keeper.learn(&Ok(()), "a");
        assert!(recoveries.has_changed().unwrap());
        recoveries.mark_unchanged();
        let healthy = keeper.health();
        assert_eq!((healthy.reachable, healthy.since), (true, Instant::now()));

        tokio::time::advance(Duration::from_secs(5)).await;
        let began = Instant::now();
        keeper.learn(&broken("first"), "a");
        tokio::time::advance(Duration::from_secs(80)).await;
        keeper.learn(&broken(&"é".repeat(600)), "a");
        let health = keeper.health();
        assert_eq!((health.reachable, health.since), (false, began), "since the first of them");
        let error = health.error.unwrap();
        assert!(error.starts_with("request failed: éé") && error.len() <= LONGEST_ERROR + '…'.len_utf8(), "{error}");
        // An error that says nothing about the apiserver changes nothing.
        keeper.learn(&Err::<(), _>(UpstreamError::Busy), "a");
        assert_eq!(keeper.health().since, began);

        keeper.learn(&Ok(()), "a");
        assert_eq!(keeper.health(), Health { reachable: true, since: Instant::now(), error: None });
        assert!(recoveries.has_changed().unwrap());
    }
}
