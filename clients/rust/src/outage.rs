//! What is wrong for now, told of seldom: when it begins, every 30 seconds while it lasts, and when it is over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const REMINDER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Outage {
    what: String,
    fails: &'static str,
    recovers: &'static str,
    now: Mutex<Option<Now>>,
}

#[derive(Debug)]
struct Now {
    since: Instant,
    told: Instant,
    attempts: u32,
}

// === impl Outage ===

impl Outage {
    pub(crate) fn new(what: String, fails: &'static str, recovers: &'static str) -> Self {
        Self { what, fails, recovers, now: Mutex::default() }
    }

    pub(crate) fn failed(&self, error: &str) {
        if let Some(line) = self.line(Instant::now(), error) {
            tracing::warn!("{line}");
        }
    }

    pub(crate) fn over(&self) {
        if let Some(now) = self.lock().take() {
            tracing::info!("{} {} after {:.1} s", self.what, self.recovers, now.since.elapsed().as_secs_f64());
        }
    }

    /// What is to be told of an attempt that has failed.
    fn line(&self, at: Instant, error: &str) -> Option<String> {
        let Self { what, fails, .. } = self;
        let mut locked = self.lock();
        let Some(now) = &mut *locked else {
            *locked = Some(Now { since: at, told: at, attempts: 1 });
            return Some(format!("{what} {fails}; trying again: {error}"));
        };
        now.attempts = now.attempts.saturating_add(1);
        if at.duration_since(now.told) < REMINDER {
            return None;
        }
        now.told = at;
        let seconds = at.duration_since(now.since).as_secs();
        Some(format!("{what} still {fails} after {seconds} s and {} attempts: {error}", now.attempts))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Now>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_told_once_and_then_every_thirty_seconds() {
        let outage = Outage::new("informerd".into(), "does not answer", "answers again");
        let began = Instant::now();
        let told = |seconds| outage.line(began + Duration::from_secs(seconds), "refused");
        assert_eq!(told(0).as_deref(), Some("informerd does not answer; trying again: refused"));
        assert_eq!((told(1), told(29)), (None, None));
        assert_eq!(told(31).as_deref(), Some("informerd still does not answer after 31 s and 4 attempts: refused"));
        assert_eq!(told(60), None);
        outage.over();
        assert!(told(61).is_some_and(|line| line.contains("trying again")));
    }
}
