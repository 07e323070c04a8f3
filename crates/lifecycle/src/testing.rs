//! A waker whose wakes a test counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

#[derive(Default)]
pub struct Wakes(AtomicUsize);

impl Wakes {
    pub fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::<Self>::default();
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
