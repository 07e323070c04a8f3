//! Clusters that no test uses at the moment. A start takes seconds of the processor, a reset a tenth of that.
//!
//! A cluster is used again only if nothing was done to it that a reset does not take back, and after the thread of its
//! test has ended: until then something that the test has started may still write. Its pipes belong to no runtime here.

use std::cell::RefCell;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::Instant;

use super::Info;

/// As many as wait for tests at the same time, and as many as one test leaves.
const MOST: usize = 3;

/// kube-apiserver compacts after five minutes what is as old as that. No test has seen this yet, and none shall.
const OLDEST: Duration = Duration::from_secs(150);

static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

thread_local! {
    static LEFT: Left = const { Left(RefCell::new(Vec::new())) };
}

/// What the test of this thread has left.
struct Left(RefCell<Vec<Idle>>);

/// The judge without a runtime. Its stdin is closed first, which it takes as its end.
pub(super) struct Idle {
    pub info: Info,
    pub commands: ChildStdin,
    pub answers: ChildStdout,
    pub process: Process,
}

/// The judge's process. Its directory goes with it, by the judge itself when this process ends with clusters left.
pub(super) struct Process {
    pub child: Child,
    pub dir: TempDir,
    pub started: Instant,
}

/// One that is young enough.
pub(super) fn take() -> Option<Idle> {
    let mut old = Vec::new();
    let mut idle = IDLE.lock();
    while let Some(found) = idle.pop() {
        if found.process.started.elapsed() < OLDEST {
            return Some(found);
        }
        old.push(found);
    }
    drop(idle);
    None
}

/// Keeps it for another test, from the end of this thread on.
pub(super) fn leave(idle: Idle) {
    let mut idle = Some(idle);
    // While the thread ends there is no place any more.
    let _ = LEFT.try_with(|left| {
        let mut left = left.0.borrow_mut();
        if left.len() < MOST {
            left.extend(idle.take());
        }
    });
}

impl Drop for Left {
    fn drop(&mut self) {
        let mut more = Vec::new();
        let mut idle = IDLE.lock();
        for left in self.0.get_mut().drain(..) {
            if idle.len() < MOST { idle.push(left) } else { more.push(left) }
        }
        drop(idle);
    }
}

impl Drop for Process {
    /// Waits until the processes are gone, which takes milliseconds: they would write into the directory while it is
    /// being removed.
    #[allow(clippy::disallowed_methods, reason = "drop cannot await, and the runtime may be gone")]
    fn drop(&mut self) {
        for _ in 0..500 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // The pipes between them end its children.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
