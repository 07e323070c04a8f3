//! How close the process is to its memory limit.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use super::purge::purge;

/// The memory of the process compared with its limit. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Pressure {
    inner: Arc<Inner>,
}

/// How much memory is left, as a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Memory is plentiful. Everything may grow.
    #[default]
    Calm,
    /// Nothing new is shared, kept or cached.
    Tight,
    /// The process releases the memory that it can, and refuses requests where it must.
    Short,
}

#[derive(Debug)]
struct Inner {
    /// In bytes. `None` for no limit.
    limit: Option<u64>,
    measure: fn() -> Option<u64>,
    /// The bytes received since the last measurement, and their number that triggers the next one.
    grown: AtomicUsize,
    step: usize,
    /// The memory that the kernel holds for the process, other than its pages.
    kernel: AtomicU64,
    /// As of the last measurement.
    used: AtomicU64,
    level: AtomicU8,
    changes: watch::Sender<Level>,
    /// Locked during a measurement.
    looking: Mutex<Purges>,
    purges: AtomicU64,
}

/// The state of returning freed memory to the system.
#[derive(Debug, Default)]
struct Purges {
    last: Option<Instant>,
    /// Whether memory is returned as soon as it is freed.
    at_once: bool,
}

/// The percentages of the limit at which memory becomes tight and short. The rest is for memory that is not accounted
/// for.
const TIGHT: u64 = 78;
const SHORT: u64 = 86;
/// Memory is measured again after this fraction of the limit was received.
const STEPS: u64 = 256;
const LEAST_STEP: u64 = 256 << 10;
/// The assumed fastest growth per second between two measurements, in bytes.
const FASTEST: u64 = 1 << 30;
/// The pause between two purges while memory is not plentiful. In the meantime, freed memory is returned by itself.
const PURGE: Duration = Duration::from_millis(100);
/// If memory is plentiful this long after a purge, freed memory is kept again.
const SETTLED: Duration = Duration::from_secs(1);
const LEAST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(500);

// === impl Pressure ===

impl Default for Pressure {
    /// A pressure without a limit.
    fn default() -> Self {
        Self::new(None)
    }
}

impl Pressure {
    /// The memory pressure of this process. `limit` is in bytes.
    pub fn new(limit: Option<u64>) -> Self {
        Self::measured(limit, private_bytes)
    }

    fn measured(limit: Option<u64>, measure: fn() -> Option<u64>) -> Self {
        let step = limit.map_or(u64::MAX, |limit| (limit / STEPS).max(LEAST_STEP));
        Self {
            inner: Arc::new(Inner {
                limit,
                measure,
                grown: AtomicUsize::new(0),
                step: usize::try_from(step).unwrap_or(usize::MAX),
                kernel: AtomicU64::new(0),
                used: AtomicU64::new(0),
                level: AtomicU8::new(Level::Calm as u8),
                changes: watch::Sender::new(Level::Calm),
                looking: Mutex::default(),
                purges: AtomicU64::new(0),
            }),
        }
    }

    pub fn limit(&self) -> Option<u64> {
        self.inner.limit
    }

    /// The memory of the process at the last measurement, in bytes.
    pub fn used(&self) -> u64 {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// The level at the last measurement.
    pub fn level(&self) -> Level {
        Level::of(self.inner.level.load(Ordering::Relaxed))
    }

    /// Notifies of each change of the level.
    pub fn changes(&self) -> watch::Receiver<Level> {
        self.inner.changes.subscribe()
    }

    /// Announces that this many bytes are about to be received. Measures the process when enough bytes have
    /// accumulated.
    pub fn grow(&self, bytes: usize) {
        let inner = &self.inner;
        let is_due = |grown: usize| inner.limit.is_some() && grown >= inner.step;
        if is_due(inner.grown.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes)) {
            // Wait for a measurement that is already running. It may free memory and makes another one unnecessary.
            let mut looking = inner.looking.lock();
            if is_due(inner.grown.load(Ordering::Relaxed)) {
                self.measure(&mut looking);
            }
        }
    }

    /// Measures the process. If memory is not plentiful, first returns freed memory to the system.
    pub fn look(&self) -> Level {
        self.measure(&mut self.inner.looking.lock())
    }

    /// Only one measurement runs at a time, so that the level and the notifications agree.
    fn measure(&self, looking: &mut MutexGuard<'_, Purges>) -> Level {
        let inner = &self.inner;
        let Some(limit) = inner.limit else { return Level::Calm };
        inner.grown.store(0, Ordering::Relaxed);
        let kernel = inner.kernel.load(Ordering::Relaxed);
        let measure = || (inner.measure)().unwrap_or_default() + kernel;
        let (before, mut used) = (self.level(), measure());
        let mut level = Level::at(used, limit);
        let since = looking.last.map_or(Duration::MAX, |last| last.elapsed());
        if level != Level::Calm && (!looking.at_once || since >= PURGE) {
            self.purge(looking, true);
            used = measure();
            level = Level::at(used, limit);
        } else if level == Level::Calm && looking.at_once && since >= SETTLED {
            self.purge(looking, false);
        }
        inner.used.store(used, Ordering::Relaxed);
        inner.level.store(level as u8, Ordering::Relaxed);
        if level != before {
            inner.changes.send_replace(level);
        }
        level
    }

    fn purge(&self, looking: &mut MutexGuard<'_, Purges>, at_once: bool) {
        purge(at_once);
        **looking = Purges { last: Some(Instant::now()), at_once };
        self.inner.purges.fetch_add(1, Ordering::Relaxed);
    }

    /// How often freed memory was returned to the system.
    pub fn purges(&self) -> u64 {
        self.inner.purges.load(Ordering::Relaxed)
    }

    /// Sets the memory that the kernel holds for the process other than its pages: sockets and page tables.
    pub fn set_kernel(&self, bytes: u64) {
        self.inner.kernel.store(bytes, Ordering::Relaxed);
    }

    /// The time until the next measurement, regardless of announced growth.
    pub fn wait(&self) -> Duration {
        let room = self.inner.limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.used()));
        Duration::from_millis((room / (FASTEST / 1000)).min(1000)).clamp(LEAST_WAIT, LONGEST_WAIT)
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn set(&self, level: Level) {
        self.inner.level.store(level as u8, Ordering::Relaxed);
        self.inner.changes.send_replace(level);
    }
}

// === impl Level ===

impl Level {
    fn of(number: u8) -> Self {
        [Self::Calm, Self::Tight].into_iter().find(|level| *level as u8 == number).unwrap_or(Self::Short)
    }

    fn at(used: u64, limit: u64) -> Self {
        match used {
            used if used >= limit / 100 * SHORT => Self::Short,
            used if used >= limit / 100 * TIGHT => Self::Tight,
            _ => Self::Calm,
        }
    }
}

/// The memory that only this process uses, if the kernel reports it. Pages of files are not included: the kernel can
/// read them again, and it reclaims them before it kills a process.
fn private_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/statm").ok()?)
}

/// Parses the total, resident and shared pages; more fields follow.
fn parse(statm: &str) -> Option<u64> {
    let page = rustix::param::page_size() as u64;
    let mut fields = statm.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next()??, fields.next()??);
    Some(resident.saturating_sub(shared) * page)
}

#[cfg(test)]
mod tests {
    use super::*;

    static USED: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn growth_is_looked_at_without_a_clock() {
        let pressure = Pressure::measured(Some(100 << 20), || Some(USED.load(Ordering::Relaxed)));
        let changes = pressure.changes();
        USED.store(85 << 20, Ordering::Relaxed);
        pressure.grow(100 << 10);
        assert_eq!(pressure.level(), Level::Calm, "not for so little");
        pressure.grow(400 << 10);
        assert_eq!((pressure.level(), *changes.borrow()), (Level::Tight, Level::Tight));
        USED.store(90 << 20, Ordering::Relaxed);
        pressure.grow(1 << 20);
        assert_eq!((pressure.level(), pressure.used()), (Level::Short, 90 << 20));
        assert_eq!(pressure.wait(), LEAST_WAIT);
        USED.store(10 << 20, Ordering::Relaxed);
        pressure.set_kernel(75 << 20);
        assert_eq!((pressure.look(), pressure.used()), (Level::Tight, 85 << 20));
        pressure.set_kernel(1 << 20);
        assert_eq!(pressure.look(), Level::Calm);
        assert!(pressure.wait() > LEAST_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn freed_memory_is_given_back_ten_times_a_second_at_most() {
        static USED: AtomicU64 = AtomicU64::new(0);
        let pressure = Pressure::measured(Some(100 << 20), || Some(USED.load(Ordering::Relaxed)));
        // Both when the memory changes and when it stays the same.
        for used in [[90, 90], [70, 80], [70, 90]] {
            let before = pressure.purges();
            for look in 0..1000 {
                USED.store(used[look % 2] << 20, Ordering::Relaxed);
                pressure.grow(1 << 20);
                assert_eq!(pressure.used(), used[look % 2] << 20, "every growth is looked at");
                assert_eq!(pressure.level(), Level::at(used[look % 2] << 20, 100 << 20));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!((1..=11).contains(&(pressure.purges() - before)), "{used:?}: {}", pressure.purges() - before);
        }
        // Freed memory is kept again once memory is plentiful.
        let before = pressure.purges();
        USED.store(10 << 20, Ordering::Relaxed);
        for _ in 0..10 {
            pressure.look();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert_eq!(pressure.purges() - before, 1);
    }

    #[test]
    fn without_a_limit_all_is_calm() {
        let pressure = Pressure::default();
        pressure.grow(usize::MAX);
        assert_eq!((pressure.look(), pressure.wait()), (Level::Calm, LONGEST_WAIT));
    }

    #[test]
    fn reads_the_kernels_line() {
        assert_eq!(parse("9000 300 100 5 0 800 0\n"), Some(200 * 4096));
        assert_eq!(parse("9000 300"), None);
        assert!(cfg!(not(target_os = "linux")) || private_bytes().is_some_and(|bytes| bytes > 0));
    }
}
