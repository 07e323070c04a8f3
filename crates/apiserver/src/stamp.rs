//! The time of the last occurrence of something, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Written often and read rarely. Precise to the millisecond.
#[derive(Debug)]
pub struct Stamp {
    started: Instant,
    /// Milliseconds after `started`, plus one; zero means never.
    at: AtomicU64,
}

// === impl Stamp ===

impl Stamp {
    pub fn new(now: Instant) -> Self {
        Self { started: now, at: AtomicU64::new(0) }
    }

    pub fn set(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.started).as_millis();
        self.at.fetch_max(u64::try_from(ms).unwrap_or(u64::MAX - 1) + 1, Ordering::Relaxed);
    }

    pub fn get(&self) -> Option<Instant> {
        let ms = self.at.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.started + Duration::from_millis(ms))
    }
}

impl Default for Stamp {
    fn default() -> Self {
        Self::new(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_latest() {
        let start = Instant::now();
        let stamp = Stamp::new(start);
        assert_eq!(stamp.get(), None);
        stamp.set(start);
        assert_eq!(stamp.get(), Some(start));
        stamp.set(start + Duration::from_secs(5));
        stamp.set(start + Duration::from_secs(3));
        assert_eq!(stamp.get(), Some(start + Duration::from_secs(5)));
    }
}
