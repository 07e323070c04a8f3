//! Cooperative scheduling: a task that runs many futures is woken once for all of them.
//!
//! An event wakes the watches of a connection, or of a shard, one after the other. The first wake would start their task
//! on an idle thread at once. It would find one or two watches that have something to send, write it, and fall asleep
//! again, many times for each event.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakes one task. Inside [`together`], the wake is postponed until all futures are woken.
#[derive(Debug, Default)]
pub struct JointWaker {
    task: AtomicWaker,
    /// One thread will wake the task at the end of its [`together`].
    postponed: AtomicBool,
}

/// Wakes what was postponed, also after a panic.
struct Postponed;

thread_local! {
    /// `Some` inside [`together`].
    static POSTPONED: RefCell<Option<Vec<Arc<JointWaker>>>> = const { RefCell::new(None) };
}

/// Calls all `wakers`. Tasks that have a [`JointWaker`] are woken once, at the end.
pub fn together(wakers: impl IntoIterator<Item = Waker>) {
    let is_first = POSTPONED.with_borrow_mut(|postponed| {
        let is_first = postponed.is_none();
        postponed.get_or_insert_default();
        is_first
    });
    let _at_the_end = is_first.then_some(Postponed);
    wakers.into_iter().for_each(Waker::wake);
}

// === impl JointWaker ===

impl JointWaker {
    /// The task to wake from now on. It must be registered before the futures are polled.
    pub fn register(&self, task: &Waker) {
        self.task.register(task);
    }
}

impl Wake for JointWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let postponed = POSTPONED.with_borrow_mut(|postponed| {
            let Some(postponed) = postponed else { return false };
            // Another thread that has set the flag wakes the task after it has cleared it, so after this.
            if !self.postponed.swap(true, Ordering::AcqRel) {
                postponed.push(Arc::clone(self));
            }
            true
        });
        if !postponed {
            self.task.wake();
        }
    }
}

// === impl Postponed ===

impl Drop for Postponed {
    fn drop(&mut self) {
        for waker in POSTPONED.take().into_iter().flatten() {
            waker.postponed.swap(false, Ordering::AcqRel);
            waker.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Wakes;

    fn joint() -> (Arc<JointWaker>, Arc<Wakes>, Waker) {
        let (joint, (count, waker)) = (Arc::<JointWaker>::default(), Wakes::new());
        joint.register(&waker);
        (joint, count, waker)
    }

    #[test]
    fn a_task_is_woken_once_after_all_of_its_futures() {
        let (joint, count, waker) = joint();
        let (futures, future) = Wakes::new();
        let wakers = (0..10).flat_map(|_| [Waker::from(Arc::clone(&joint)), future.clone()]);
        together(wakers.inspect(|_| assert_eq!(count.count(), 0)));
        assert_eq!((count.count(), futures.count()), (1, 10));
        joint.register(&waker);
        together([Waker::from(Arc::clone(&joint))]);
        assert_eq!(count.count(), 2, "it can be postponed again");
    }

    #[test]
    fn outside_it_is_woken_at_once() {
        let (joint, count, _) = joint();
        Waker::from(joint).wake();
        assert_eq!(count.count(), 1);
    }

    #[test]
    fn a_panic_loses_no_wake() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        let (joint, count, _) = joint();
        let wakers = [Waker::from(joint), Waker::from(Arc::new(Panics))];
        assert!(std::panic::catch_unwind(|| together(wakers)).is_err());
        assert_eq!(count.count(), 1);
        let (joint, count, _) = self::joint();
        Waker::from(joint).wake();
        assert_eq!(count.count(), 1, "and nothing is postponed any more");
    }
}
