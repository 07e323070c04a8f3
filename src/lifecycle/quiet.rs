//! Futures that a busy task waits for besides its work.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// A future that is polled only when it has asked for it. A task that is woken for each of thousands of events would
/// otherwise poll everything else that it waits for each time, such as the start of a drain.
pub struct Quiet<F: ?Sized> {
    bell: Arc<Bell>,
    /// Wakes through `bell`.
    waker: Waker,
    /// The waker of the task that the bell knows.
    known: Option<Waker>,
    future: Pin<Box<F>>,
}

struct Bell {
    rung: AtomicBool,
    /// Stays here when it is used, so that each ring wakes the task.
    task: Mutex<Option<Waker>>,
}

// === impl Quiet ===

impl<F: Future + ?Sized> Quiet<F> {
    pub fn new(future: Pin<Box<F>>) -> Self {
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: Mutex::new(None) });
        Self { waker: Waker::from(Arc::clone(&bell)), bell, known: None, future }
    }
}

impl<F: Future + ?Sized> Future for Quiet<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if !this.known.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *this.bell.task.lock() = Some(cx.waker().clone());
            this.known = Some(cx.waker().clone());
        }
        // After the registration: a ring is either seen here or wakes the task.
        if !this.bell.rung.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        this.bell.rung.store(false, Ordering::SeqCst);
        this.future.as_mut().poll(&mut Context::from_waker(&this.waker))
    }
}

// === impl Bell ===

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
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
        let waiting = crate::lifecycle::spawn("waiting", quiet);
        tokio::time::timeout(Duration::from_secs(6), waiting).await.unwrap().unwrap();
    }
}
