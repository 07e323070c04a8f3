//! The only place that spawns tasks. Every task has a name, and no task dies unnoticed.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The number of panics of spawned and [`contained`] work since the process started.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Critical tasks report their failure here, and the app waits for it. Cloning is cheap. The first report wins.
#[derive(Clone, Debug, Default)]
pub struct Fatal {
    failure: Arc<watch::Sender<Option<Failure>>>,
}

/// The task that ended the process, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub task: &'static str,
    pub reason: &'static str,
}

/// Lives on the task's stack. When it is dropped, it distinguishes a normal end, a panic and an abort.
struct Witness {
    name: &'static str,
    ended: bool,
    on_panic: Option<Fatal>,
    on_end: Option<Fatal>,
}

/// Spawns a task whose failure affects only itself. A panic is logged and counted.
pub fn spawn<T: Send + 'static>(name: &'static str, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    watched(Witness { name, ended: false, on_panic: None, on_end: None }, future)
}

/// Spawns a task that the process needs. If it ends or panics, the failure is reported to `fatal`. Aborting it
/// through the handle is not a failure.
pub fn spawn_critical<T: Send + 'static>(
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
    fatal: &Fatal,
) -> JoinHandle<T> {
    let fatal = Some(fatal.clone());
    watched(Witness { name, ended: false, on_panic: fatal.clone(), on_end: fatal }, future)
}

/// Spawns a task that may end when its work is done, but whose panic must stop the process. An example is the
/// reflector of an informer that stops when idle.
pub fn spawn_supervised<T: Send + 'static>(
    name: &'static str,
    future: impl Future<Output = T> + Send + 'static,
    fatal: &Fatal,
) -> JoinHandle<T> {
    watched(Witness { name, ended: false, on_panic: Some(fatal.clone()), on_end: None }, future)
}

/// Calls `work`. A panic affects only what it has worked on, and is logged and counted like that of a task: `None`.
pub fn contained<T>(name: &'static str, work: impl FnOnce() -> T) -> Option<T> {
    let witness = Witness { name, ended: false, on_panic: None, on_end: None };
    let work = || {
        // In here, so that it is dropped while the panic unwinds.
        let witness = witness;
        let done = work();
        witness.end();
        done
    };
    std::panic::catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The number of panics of spawned and [`contained`] work since the process started.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
fn watched<T: Send + 'static>(witness: Witness, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    // Boxed, because an async block stores a captured future twice, once as captured and once as awaited. And without its
    // type: the runtime's code for tasks is in the program once for each type.
    let future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    tokio::spawn(async move {
        let output = future.await;
        witness.end();
        output
    })
}

// === impl Fatal ===

impl Fatal {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports a failure. Only the first one is kept.
    pub fn report(&self, failure: Failure) {
        self.failure.send_if_modified(|kept| {
            let is_first = kept.is_none();
            kept.get_or_insert(failure);
            is_first
        });
    }

    /// Waits until a critical task has failed, possibly forever.
    pub async fn wait(&self) -> Failure {
        let mut failures = self.failure.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        let reported = failures.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match reported {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {} {}", self.task, self.reason)
    }
}

impl std::error::Error for Failure {}

// === impl Witness ===

impl Witness {
    /// Consumes the whole witness, so that a task's future captures it as a whole instead of field by field.
    fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let (fatal, reason) = if self.ended {
            (self.on_end.take(), "ended")
        } else if std::thread::panicking() {
            PANICS.fetch_add(1, Ordering::Relaxed);
            tracing::error!(target: "informerd::lifecycle::task", task = self.name, "task panicked");
            (self.on_panic.take(), "panicked")
        } else {
            return;
        };
        if let Some(fatal) = fatal {
            fatal.report(Failure { task: self.name, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_fatal_and_counted() {
        let fatal = Fatal::new();
        let before = panics();
        let task = spawn_supervised("dispatcher", async { panic!("on purpose") }, &fatal);
        assert_eq!(fatal.wait().await.to_string(), "task dispatcher panicked");
        assert!(task.await.unwrap_err().is_panic());
        assert!(panics() > before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_supervised_end_and_an_abort_are_no_failures() {
        let fatal = Fatal::new();
        spawn_supervised("reflector", async {}, &fatal).await.unwrap();
        let task = spawn_critical("dispatcher", std::future::pending::<()>(), &fatal);
        tokio::time::sleep(Duration::from_secs(1)).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert!(futures_util::poll!(Box::pin(fatal.wait())).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_report_wins() {
        let fatal = Fatal::new();
        fatal.report(Failure { task: "a", reason: "ended" });
        fatal.report(Failure { task: "b", reason: "ended" });
        assert_eq!(fatal.wait().await.task, "a");
    }
}
