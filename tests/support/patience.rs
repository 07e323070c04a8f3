//! Waits that have a bound, and say what they waited for. The bounds only keep a failing test from hanging.

#![allow(dead_code, reason = "every test binary uses its own part")]
#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Once;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

/// For what takes milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// For what takes seconds, and for everything that somebody else waits for as well.
pub(crate) const LONG: Duration = Duration::from_secs(300);
/// For a stream that is read until something is in it, with whatever comes before.
pub(crate) const STREAM: Duration = Duration::from_secs(600);

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let bound = Instant::now() + SOON;
    while !so() {
        assert!(Instant::now() < bound, "not in {SOON:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The same for something that has to be asked for.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !so().await {
            sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}

/// The output of a future that ends by itself.
pub(crate) async fn within<F: IntoFuture>(what: &str, future: F) -> F::Output {
    timeout(LONG, future).await.unwrap_or_else(|_| panic!("not in {LONG:?}: {what}"))
}

/// The most that a test takes after it has started something. Beyond it, the process of all tests ends: whatever the test
/// waits for has no bound of its own.
const TEST: Duration = Duration::from_secs(1800);

/// The tests that have started something, and when they did last.
static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

thread_local! {
    static TEST_OF_THREAD: RefCell<Option<Running>> = const { RefCell::new(None) };
}

struct Running(String);

/// Whatever starts something for a test calls this.
pub(crate) fn bounded() {
    static WATCHED: Once = Once::new();
    let thread = std::thread::current();
    // The thread of a test has its name. Other threads belong to a test that was here before.
    let Some(name) = thread.name().filter(|name| name.contains("::")) else { return };
    RUNNING.lock().insert(name.to_owned(), Instant::now());
    TEST_OF_THREAD.set(Some(Running(name.to_owned())));
    WATCHED.call_once(|| drop(std::thread::spawn(watch)));
}

#[allow(clippy::disallowed_methods, reason = "a thread of its own, which no runtime keeps from looking")]
fn watch() {
    loop {
        std::thread::sleep(Duration::from_secs(5));
        if let Some((name, started)) = RUNNING.lock().iter().find(|(_, started)| started.elapsed() > TEST) {
            eprintln!("{name} has not ended {:?} after it started something", started.elapsed());
            std::process::exit(1);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.lock().remove(&self.0);
    }
}
