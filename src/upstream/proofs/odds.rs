//! Estimates the probability that a known state is the store's newest one, so that reading the revision is enough to
//! prove it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::meta::ResourceVersion;

/// What was learned about the store and the watch stream. The revision is enough in two cases: the store has not moved
/// since the state was last proved, or the stream has already delivered the changes.
#[derive(Debug)]
pub(super) struct Odds {
    /// The share of the store's moves whose changes the stream had already delivered, or delivered a moment later.
    /// Recent moves count most. It is near one if only this resource changes, and near zero if only others do.
    stream: AtomicU32,
}

/// How fast the store's revision moves. It counts all writes to the store, so two revisions give a rate.
#[derive(Debug)]
pub(super) struct Movement {
    /// The newest known revision, and when it was read.
    last: Option<(ResourceVersion, Instant)>,
    /// Writes per second, as a moving average over [`MEMORY`].
    rate: f64,
    /// Less than one if the store has moved although the rate made that unlikely: writes come in bursts, and often just
    /// before they are read.
    trust: f64,
    /// Whether it had moved at the last record. The next question may be the second one of the same read, so that it has not
    /// moved by then says nothing.
    has_moved: bool,
}

/// The weight of one new move against all earlier ones.
const WEIGHT: f32 = 0.5;
/// The approximate time over which the rate is averaged.
const MEMORY: Duration = Duration::from_secs(30);
/// No answer arrives later than this after an answer to a later question.
const LATE: Duration = Duration::from_secs(20);

// === impl Odds ===

impl Default for Odds {
    /// Starts with even odds: a question for the revision is tried before a large digest, and not before one that costs no
    /// more.
    fn default() -> Self {
        Self { stream: AtomicU32::new(0.5_f32.to_bits()) }
    }
}

impl Odds {
    /// The odds, from 0 to 1, if `still` is the probability that the store is still at the proved revision.
    pub(super) fn get(&self, still: f32) -> f32 {
        1.0 - (1.0 - still) * (1.0 - self.stream())
    }

    /// Records that the store had moved, and whether the stream had delivered the change. If two callers record at
    /// once, one of the two may be lost: the value is only an estimate.
    pub(super) fn learn(&self, came: bool) {
        let seen = if came { 1.0 } else { 0.0 };
        self.stream.store((self.stream() * (1.0 - WEIGHT) + seen * WEIGHT).to_bits(), Ordering::Relaxed);
    }

    fn stream(&self) -> f32 {
        f32::from_bits(self.stream.load(Ordering::Relaxed))
    }
}

// === impl Movement ===

impl Default for Movement {
    fn default() -> Self {
        Self { last: None, rate: 0.0, trust: 1.0, has_moved: false }
    }
}

impl Movement {
    /// The probability that the store is still at `proved`.
    #[expect(clippy::cast_possible_truncation, reason = "a probability")]
    pub(super) fn stillness(&self, proved: ResourceVersion, now: Instant) -> f32 {
        match self.last {
            None => 1.0,
            Some((rv, _)) if proved < rv => 0.0,
            // For independent writes at this rate: the probability that there was none.
            Some((_, at)) => (self.expected(now.saturating_duration_since(at)) * self.trust) as f32,
        }
    }

    /// The probability of no write in this time, from the rate alone.
    fn expected(&self, during: Duration) -> f64 {
        (-self.rate * during.as_secs_f64()).exp()
    }

    /// Records that the store was at `rv` at this time. Returns true if it had moved since the last record.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn heard(&mut self, rv: ResourceVersion, at: Instant) -> bool {
        let Some((last, before)) = self.last else {
            self.last = Some((rv, at));
            return false;
        };
        if rv < last && at.saturating_duration_since(before) > LATE {
            // The store was set back, so everything that was learned is void.
            *self = Self { last: Some((rv, at)), ..Self::default() };
            return true;
        }
        let between = at.saturating_duration_since(before);
        let seconds = between.as_secs_f64();
        let half = f64::from(WEIGHT);
        if rv > last {
            self.trust *= 1.0 - self.expected(between) * half;
        } else if seconds > 0.0 && !self.has_moved {
            self.trust += (1.0 - self.trust) * half;
        }
        self.has_moved = rv > last;
        // Answers may arrive in another order than their questions.
        if rv >= last && seconds > 0.0 {
            let writes = rv.get().saturating_sub(last.get()) as f64;
            let kept = (-seconds / MEMORY.as_secs_f64()).exp();
            self.rate = self.rate * kept + writes / seconds * (1.0 - kept);
        }
        self.last = Some((rv.max(last), at.max(before)));
        rv > last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rv(n: u64) -> ResourceVersion {
        ResourceVersion(n)
    }

    fn near(odds: f32, expected: f32) -> bool {
        (odds - expected).abs() < 0.05
    }

    /// The odds for a store that is known by `movement` alone or also by the stream.
    fn get(odds: &Odds, movement: &Movement, proved: ResourceVersion, now: Instant) -> f32 {
        odds.get(movement.stillness(proved, now))
    }

    #[test]
    fn follows_the_stream() {
        let (odds, mut movement) = (Odds::default(), Movement::default());
        let now = Instant::now();
        assert!(near(get(&odds, &movement, rv(5), now), 1.0), "nothing is known");
        movement.heard(rv(10), now);
        assert!(near(get(&odds, &movement, rv(5), now), 0.5), "whether the stream had the change is not known");
        (0..10).for_each(|_| odds.learn(false));
        assert!(near(get(&odds, &movement, rv(5), now), 0.0));
        assert!(near(get(&odds, &movement, rv(10), now), 1.0), "the store has only just been there");
        (0..10).for_each(|_| odds.learn(true));
        assert!(near(get(&odds, &movement, rv(5), now), 1.0));
    }

    #[test]
    fn a_burst_is_noticed_at_once() {
        let (odds, mut movement) = (Odds::default(), Movement::default());
        (0..10).for_each(|_| odds.learn(false));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        (0..10).for_each(|n| _ = movement.heard(rv(10), at(n)));
        assert!(near(get(&odds, &movement, rv(10), at(10)), 1.0));
        // A client writes and reads in turn.
        (10..15).for_each(|n| _ = movement.heard(rv(n + 1), at(n)));
        assert!(get(&odds, &movement, rv(15), at(15)) < 0.1);
        (15..20).for_each(|n| _ = movement.heard(rv(15), at(n)));
        assert!(get(&odds, &movement, rv(15), at(20)) > 0.9, "it stands still again");
    }

    /// Each of which asks for the revision in vain, and then for a digest.
    #[test]
    fn a_write_before_each_of_a_few_reads_is_noticed() {
        let (odds, mut movement) = (Odds::default(), Movement::default());
        (0..10).for_each(|_| odds.learn(false));
        let start = Instant::now();
        for read in 0..4 {
            let at = start + Duration::from_millis(350 * read);
            movement.heard(rv(10 + read), at);
            movement.heard(rv(10 + read), at + Duration::from_millis(5));
        }
        let next = get(&odds, &movement, rv(13), start + Duration::from_millis(4 * 350));
        assert!(next < 0.15, "{next}");
    }

    #[test]
    fn follows_the_rate_of_writes() {
        let (odds, mut movement) = (Odds::default(), Movement::default());
        (0..10).for_each(|_| odds.learn(false));
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // One write in five seconds.
        for second in 0..60 {
            movement.heard(rv(100 + second / 5), at(second * 1000));
        }
        assert!(near(get(&odds, &movement, rv(111), at(59_000)), 0.95));
        assert!(near(get(&odds, &movement, rv(111), at(60_000)), 0.8));
        assert!((0.05..0.3).contains(&get(&odds, &movement, rv(111), at(69_000))));
        assert!(near(get(&odds, &movement, rv(110), at(59_000)), 0.0), "it has moved since");
        // A hundred writes per second.
        for tenth in 0..600 {
            movement.heard(rv(112 + tenth * 10), at(60_000 + tenth * 100));
        }
        assert!(near(get(&odds, &movement, rv(6102), at(120_000)), 0.0));
        assert!(!movement.heard(rv(6000), at(120_000)), "an old word is no move");
        assert!(movement.heard(rv(7000), at(60_000)), "a new one is, though others were asked for later");
        assert!(near(get(&odds, &movement, rv(6999), at(120_000)), 0.0));
        // A store that was restored from a backup.
        assert!(movement.heard(rv(50), at(150_000)));
        assert!(near(get(&odds, &movement, rv(50), at(150_000)), 1.0));
    }
}
