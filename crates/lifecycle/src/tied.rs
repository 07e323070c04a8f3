//! Values that live no longer than a task.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// A value that a task drops when it ends, although others still use it. Cloning shares the value.
///
/// It is made for the sending half of a queue that the task reads. A queue of tokio closes before it is emptied. A sender
/// that has passed the check before that adds its message afterwards. Nobody reads this message, and it is dropped only
/// with the last sender. Whoever waits for an answer to it would wait forever.
#[derive(Debug)]
pub struct Tied<T>(Arc<Mutex<Option<T>>>);

/// Drops the value when it is dropped. The task owns it.
#[derive(Debug)]
pub struct Knot<T>(Weak<Mutex<Option<T>>>);

// === impl Tied ===

impl<T> Tied<T> {
    pub fn new(value: T) -> (Self, Knot<T>) {
        let tied = Arc::new(Mutex::new(Some(value)));
        let knot = Knot(Arc::downgrade(&tied));
        (Self(tied), knot)
    }

    /// Uses the value, which is locked meanwhile. `None` after the end of the task.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.lock().as_mut().map(use_it)
    }
}

impl<T> Clone for Tied<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

// === impl Knot ===

impl<T> Drop for Knot<T> {
    fn drop(&mut self) {
        if let Some(tied) = self.0.upgrade() {
            let value = tied.lock().take();
            drop(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_dropped_with_the_task_or_with_its_last_user() {
        let value = Arc::new(());
        let (tied, knot) = Tied::new(Arc::clone(&value));
        let other = tied.clone();
        assert_eq!(other.with(|value| Arc::strong_count(value)), Some(2));
        drop(knot);
        assert_eq!((Arc::strong_count(&value), tied.with(|_| ())), (1, None), "the task has ended");

        let (tied, knot) = Tied::new(Arc::clone(&value));
        drop(tied);
        assert_eq!(Arc::strong_count(&value), 1, "nobody uses it");
        drop(knot);
    }
}
