//! Which futures of one task were woken, in their order. The task is woken once for all of them ([`JointWaker`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

use super::wakes::JointWaker;

/// The futures of one task that were woken and have not run since.
#[derive(Debug, Default)]
pub struct Woken {
    order: Mutex<VecDeque<u64>>,
    task: Arc<JointWaker>,
}

/// Wakes one future.
#[derive(Debug)]
pub struct WakeOne {
    key: u64,
    /// It is in the order, or whoever took it from there has not run it yet.
    is_queued: AtomicBool,
    woken: Arc<Woken>,
}

// === impl Woken ===

impl Woken {
    /// Wakes the future with this key. `is_queued`: it will run in any case.
    pub fn one(self: &Arc<Self>, key: u64, is_queued: bool) -> Arc<WakeOne> {
        Arc::new(WakeOne { key, is_queued: AtomicBool::new(is_queued), woken: Arc::clone(self) })
    }

    /// The task to wake from now on. It must be registered before a look at what was woken: a later wake wakes the task.
    pub fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    pub fn wake_task(&self) {
        self.task.wake_by_ref();
    }

    /// The next future that was woken. [`WakeOne::begins`] must be called before it runs.
    pub fn pop(&self) -> Option<u64> {
        self.order.lock().pop_front()
    }

    /// The same for all that were woken.
    pub fn drain_into(&self, queue: &mut VecDeque<u64>) {
        queue.append(&mut self.order.lock());
    }
}

// === impl WakeOne ===

impl WakeOne {
    /// The future runs now, and may be woken meanwhile.
    pub fn begins(&self) {
        // Not a store: the future must see what its earlier wakers have done.
        self.is_queued.swap(false, Ordering::AcqRel);
    }
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.woken.order.lock().push_back(self.key);
            self.woken.wake_task();
        }
    }
}
