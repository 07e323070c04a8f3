//! Futures that a busy task waits for besides its work.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// A future that is polled only when it has asked for it. A task that is woken for each of thousands of events would
/// otherwise poll everything else that it waits for each time, such as the start of a drain.
pub struct Quiet<F: ?Sized> {
    bell: Bell,
    future: Pin<Box<F>>,
}

/// Tells whether something has to be polled. It must be polled at first, and again each time its waker was used.
pub struct Bell {
    wire: Arc<Wire>,
    /// [`RINGS`] when `wire` was looked at.
    looked: Option<u64>,
    /// Wakes through `wire`.
    waker: Waker,
    /// The waker of the task that `wire` knows.
    known: Option<Waker>,
}

struct Wire {
    rung: AtomicBool,
    /// Stays here when it is used, so that each ring wakes the task.
    task: Mutex<Option<Waker>>,
}

/// How often any bell was rung. Rings are rare, so this is in the cache of each processor, while the wire of one of
/// thousands of bells is not.
static RINGS: AtomicU64 = AtomicU64::new(0);

// === impl Quiet ===

impl<F: Future + ?Sized> Quiet<F> {
    pub fn new(future: Pin<Box<F>>) -> Self {
        Self { bell: Bell::default(), future }
    }
}

impl<F: Future + ?Sized> Future for Quiet<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        match this.bell.rung(cx) {
            Some(waker) => this.future.as_mut().poll(&mut Context::from_waker(waker)),
            None => Poll::Pending,
        }
    }
}

// === impl Bell ===

impl Default for Bell {
    fn default() -> Self {
        let wire = Arc::new(Wire { rung: AtomicBool::new(true), task: Mutex::new(None) });
        Self { waker: Waker::from(Arc::clone(&wire)), wire, looked: None, known: None }
    }
}

impl Bell {
    /// The waker to poll with, if it is time to poll. Otherwise the task of `cx` is woken at that time.
    pub fn rung(&mut self, cx: &Context<'_>) -> Option<&Waker> {
        if !self.known.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *self.wire.task.lock() = Some(cx.waker().clone());
            self.known = Some(cx.waker().clone());
        }
        // After the registration: a ring is either seen here or wakes the task.
        let rings = Some(RINGS.load(Ordering::SeqCst));
        if self.looked == rings {
            return None;
        }
        self.looked = rings;
        self.wire.rung.swap(false, Ordering::SeqCst).then_some(&self.waker)
    }
}

// === impl Wire ===

impl Wake for Wire {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        RINGS.fetch_add(1, Ordering::SeqCst);
        let task = self.task.lock().clone();
        task.iter().for_each(Waker::wake_by_ref);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn is_polled_when_it_has_asked_for_it() {
        let (notify, mut polls) = (Notify::new(), 0);
        let mut notified = Box::pin(notify.notified());
        let counted = std::future::poll_fn(|cx| {
            polls += 1;
            notified.as_mut().poll(cx)
        });
        let mut quiet = Quiet::new(Box::pin(counted));
        for _ in 0..100 {
            assert!(futures_util::poll!(&mut quiet).is_pending());
        }
        notify.notify_one();
        assert!(futures_util::poll!(&mut quiet).is_ready());
        drop(quiet);
        assert_eq!(polls, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_the_task_that_polled_it_last() {
        let mut quiet = Quiet::new(Box::pin(tokio::time::sleep(Duration::from_secs(5))));
        assert!(futures_util::poll!(&mut quiet).is_pending());
        let waiting = crate::spawn("waiting", quiet);
        tokio::time::timeout(Duration::from_secs(6), waiting).await.unwrap().unwrap();
    }
}
