//! The drain. It is announced once to all tasks, is complete when the last guard is dropped, and is forced at its
//! deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

/// How long forced work may take to drop its guards. After that, the drain ends without it.
const FORCE_GRACE: Duration = Duration::from_secs(1);

/// The side that starts the drain and waits for it to complete.
#[derive(Clone, Debug)]
pub struct Drain {
    shared: Arc<SharedDrain>,
}

/// The side that works until the drain starts.
#[derive(Clone, Debug)]
pub struct DrainWatch {
    shared: Arc<SharedDrain>,
}

/// Waits until the drain has started, like [`DrainWatch::draining`], for streams of which there are thousands: it takes a
/// fifth of the memory, and a poll takes no lock unless the task has changed.
#[derive(Debug)]
pub struct DrainSignal {
    shared: Arc<SharedDrain>,
    /// Its key in [`SharedDrain::waiting`], and the waker that is there.
    registered: Option<(usize, Waker)>,
}

/// While a guard is held, the drain is not complete.
#[derive(Debug)]
pub struct DrainGuard {
    shared: Arc<SharedDrain>,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// Every guard was dropped before the soft deadline.
    Clean,
    /// The deadline passed. This many guards were still held after the grace period.
    Forced { left: usize },
}

#[derive(Debug)]
struct SharedDrain {
    phase: watch::Sender<Phase>,
    /// Whether the phase is not `Running`. It is read too often for a lock. Set before the phase.
    draining: AtomicBool,
    /// Whom to wake when the drain starts. A waker may own the last reference to a task, whose end comes back here, so no
    /// waker is dropped under this lock.
    waiting: Mutex<Slab<Waker>>,
    guards: watch::Sender<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Draining { deadline: Instant },
    Forced,
}

/// Creates the two sides of one drain. Dropping [`Drain`] does not start it.
pub fn channel() -> (Drain, DrainWatch) {
    let shared = Arc::new(SharedDrain {
        phase: watch::Sender::new(Phase::Running),
        draining: AtomicBool::new(false),
        waiting: Mutex::default(),
        guards: watch::Sender::new(0),
    });
    (Drain { shared: Arc::clone(&shared) }, DrainWatch { shared })
}

// === impl Drain ===

impl Drain {
    /// Tells all tasks to finish within `soft`. Only the first call has an effect.
    pub fn start(&self, soft: Duration) {
        let deadline = Instant::now() + soft;
        self.shared.draining.store(true, Ordering::Release);
        self.shared.phase.send_if_modified(|phase| {
            let first = *phase == Phase::Running;
            if first {
                *phase = Phase::Draining { deadline };
            }
            first
        });
        self.shared.wake();
    }

    /// Tells all tasks to drop their work now.
    pub fn force(&self) {
        self.shared.draining.store(true, Ordering::Release);
        self.shared.phase.send_replace(Phase::Forced);
        self.shared.wake();
    }

    /// Waits until the drain is started and all guards are dropped. After the soft deadline it forces the drain and
    /// waits for at most one more second.
    pub async fn completed(&self) -> DrainEnd {
        let watch = self.watch();
        watch.draining().await;
        let deadline = watch.deadline().unwrap_or_else(Instant::now);
        if timeout_at(deadline, self.unguarded()).await.is_ok() {
            return DrainEnd::Clean;
        }
        self.force();
        // The number of remaining guards shows whether the rest finished in time.
        timeout(FORCE_GRACE, self.unguarded()).await.ok();
        DrainEnd::Forced { left: self.guards() }
    }

    pub fn watch(&self) -> DrainWatch {
        DrainWatch { shared: Arc::clone(&self.shared) }
    }

    /// The number of guards that are held now.
    pub fn guards(&self) -> usize {
        *self.shared.guards.borrow()
    }

    async fn unguarded(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        self.shared.guards.subscribe().wait_for(|guards| *guards == 0).await.ok();
    }
}

// === impl DrainWatch ===

impl DrainWatch {
    /// A drain that never starts, for tools and tests.
    pub fn never() -> Self {
        channel().1
    }

    /// Waits until the drain has started.
    pub async fn draining(&self) {
        self.shared.phase.subscribe().wait_for(|phase| *phase != Phase::Running).await.ok();
    }

    /// The same for one of thousands of streams.
    pub fn signal(&self) -> DrainSignal {
        DrainSignal { shared: Arc::clone(&self.shared), registered: None }
    }

    /// Waits until the soft deadline has passed and work must be dropped.
    pub async fn forced(&self) {
        self.shared.phase.subscribe().wait_for(|phase| *phase == Phase::Forced).await.ok();
    }

    /// Whether the drain has started. Takes no lock.
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// When the running drain will be forced; `None` if no drain has started.
    pub fn deadline(&self) -> Option<Instant> {
        match *self.shared.phase.borrow() {
            Phase::Running => None,
            Phase::Draining { deadline } => Some(deadline),
            Phase::Forced => Some(Instant::now()),
        }
    }

    /// Delays the completion of the drain until the guard is dropped.
    pub fn guard(&self) -> DrainGuard {
        self.shared.guards.send_modify(|guards| *guards += 1);
        DrainGuard { shared: Arc::clone(&self.shared) }
    }
}

// === impl DrainSignal ===

impl Future for DrainSignal {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_known = self.registered.as_ref().is_some_and(|(_, waker)| waker.will_wake(cx.waker()));
        if !is_known && !self.shared.is_draining() {
            let before = self.registered.take();
            let mut waiting = self.shared.waiting.lock();
            let replaced = before.as_ref().and_then(|(key, _)| waiting.try_remove(*key));
            let key = waiting.insert(cx.waker().clone());
            drop(waiting);
            drop((replaced, before));
            self.registered = Some((key, cx.waker().clone()));
        }
        // After the registration: a start is either seen here or wakes the task.
        if self.shared.is_draining() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for DrainSignal {
    fn drop(&mut self) {
        let Some((key, waker)) = self.registered.take() else { return };
        // After the start, its key may be that of another signal, which does not need its waker any more.
        let registered = self.shared.waiting.lock().try_remove(key);
        drop((registered, waker));
    }
}

// === impl SharedDrain ===

impl SharedDrain {
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut *self.waiting.lock());
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

// === impl DrainGuard ===

impl Drop for DrainGuard {
    fn drop(&mut self) {
        self.shared.guards.send_modify(|guards| *guards -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn;

    #[tokio::test(start_paused = true)]
    async fn completes_when_the_last_guard_is_dropped() {
        let (drain, watch) = channel();
        let guards = [watch.guard(), watch.guard()];
        let task = spawn("worker", async move {
            watch.draining().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            drop(guards);
        });
        let started = Instant::now();
        drain.start(Duration::from_secs(10));
        assert_eq!(drain.completed().await, DrainEnd::Clean);
        assert_eq!(started.elapsed(), Duration::from_secs(3));
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn forces_at_the_deadline_and_leaves_the_deaf_behind() {
        let (drain, watch) = channel();
        let deaf = watch.guard();
        let listening = watch.guard();
        let task = spawn("worker", async move {
            watch.forced().await;
            drop(listening);
        });
        let started = Instant::now();
        drain.start(Duration::from_secs(10));
        assert_eq!(drain.completed().await, DrainEnd::Forced { left: 1 });
        assert_eq!(started.elapsed(), Duration::from_secs(11));
        task.await.unwrap();
        drop(deaf);
        assert_eq!(drain.guards(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_start_sets_the_deadline() {
        let (drain, watch) = channel();
        assert!(!watch.is_draining() && watch.deadline().is_none());
        drain.start(Duration::from_secs(5));
        let deadline = watch.deadline();
        drain.start(Duration::from_secs(50));
        assert!(watch.is_draining() && watch.deadline() == deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_wakes_the_task_that_polled_it_last_and_leaves_nothing_behind() {
        let (drain, watch) = channel();
        let mut signals: Vec<_> = (0..100).map(|_| watch.signal()).collect();
        for signal in &mut signals {
            assert!(futures_util::poll!(&mut *signal).is_pending());
            assert!(futures_util::poll!(signal).is_pending());
        }
        assert_eq!(watch.shared.waiting.lock().len(), 100);
        signals.truncate(60);
        assert_eq!(watch.shared.waiting.lock().len(), 60);
        let waiting: Vec<_> = signals.into_iter().map(|signal| spawn("waiting", signal)).collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        drain.start(Duration::from_secs(5));
        for waiting in waiting {
            timeout(Duration::from_secs(1), waiting).await.expect("woken").unwrap();
        }
        assert!(futures_util::poll!(watch.signal()).is_ready());
        assert_eq!(watch.shared.waiting.lock().len(), 0);
    }

    /// The last references to a task may be those that its signal holds.
    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_with_its_waker_takes_another_signal_along() {
        struct Task {
            _other: Mutex<DrainSignal>,
        }
        impl std::task::Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let (_drain, watch) = channel();
        for is_dropped in [true, false] {
            let (mut signal, mut other) = (watch.signal(), watch.signal());
            assert!(futures_util::poll!(&mut other).is_pending());
            let waker = Waker::from(Arc::new(Task { _other: Mutex::new(other) }));
            assert!(Pin::new(&mut signal).poll(&mut Context::from_waker(&waker)).is_pending());
            drop(waker);
            assert_eq!(watch.shared.waiting.lock().len(), 2);
            if is_dropped {
                drop(signal);
            } else {
                assert!(futures_util::poll!(signal).is_pending());
            }
            assert_eq!(watch.shared.waiting.lock().len(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_starter_starts_nothing() {
        let watch = DrainWatch::never();
        assert!(timeout(Duration::from_secs(60), watch.draining()).await.is_err());
    }
}
