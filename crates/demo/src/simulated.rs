//! A simulated cluster on a thread of its own, so that its CPU time can be distinguished from that of everything else.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use informerd_lifecycle::spawn;
use informerd_sim::{Cluster, DemoConfig, Server};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::load::Load;

/// A running cluster. It ends when dropped.
#[derive(Debug)]
pub(super) struct Simulated {
    pub(super) running: Running,
    _until: oneshot::Sender<()>,
}

/// What others may know of a running cluster.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) server: Server,
    runtime: Handle,
    clock: Option<ThreadClock>,
}

/// The CPU time of one thread since the clock was made.
#[derive(Clone, Debug)]
struct ThreadClock {
    file: PathBuf,
    start: Duration,
}

// === impl Simulated ===

impl Simulated {
    /// # Errors
    /// The thread or its server cannot be started.
    pub(super) async fn start(name: &str, shape: DemoConfig) -> io::Result<Self> {
        let (starts, started) = oneshot::channel();
        let (until, ends) = oneshot::channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || run(shape, starts, ends))?;
        Ok(Self { running: started.await.map_err(io::Error::other)??, _until: until })
    }
}

/// The thread.
fn run(shape: DemoConfig, starts: oneshot::Sender<io::Result<Running>>, ends: oneshot::Receiver<()>) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Nobody waits for it any more, so nobody has to know.
            starts.send(Err(error)).ok();
            return;
        }
    };
    runtime.block_on(async move {
        let (cluster, running) = match Cluster::start(shape).await {
            Ok(cluster) => {
                let (server, clock) = (cluster.server().clone(), ThreadClock::of_this_thread());
                (Some(cluster), Ok(Running { server, runtime: Handle::current(), clock }))
            }
            Err(error) => (None, Err(error)),
        };
        if starts.send(running).is_ok() && cluster.is_some() {
            ends.await.ok();
        }
    });
}

// === impl Running ===

impl Running {
    /// What the apiserver had to do until now.
    pub(super) fn load(&self) -> Load {
        Load { cpu: self.clock.as_ref().and_then(ThreadClock::elapsed), ..Load::from(&self.server.counts()) }
    }

    /// Cuts the apiserver off, and connects it again after `down`.
    ///
    /// # Errors
    /// It cannot listen again.
    pub(super) async fn cut_off(&self, down: Duration) -> io::Result<()> {
        let server = self.server.clone();
        let restart = {
            // Its new tasks must run on its thread, too.
            let _on_its_thread = self.runtime.enter();
            spawn("demo outage", async move { server.restart(down, false).await })
        };
        restart.await.map_err(io::Error::other)?
    }
}

// === impl ThreadClock ===

impl ThreadClock {
    /// `None` if the kernel does not report it. Only Linux does, and not every one.
    fn of_this_thread() -> Option<Self> {
        let thread = std::fs::read_link("/proc/thread-self").ok()?;
        let file = PathBuf::from("/proc").join(thread).join("schedstat");
        // The thread has already run.
        let start = time_in(&std::fs::read_to_string(&file).ok()?).filter(|start| !start.is_zero())?;
        Some(Self { file, start })
    }

    fn elapsed(&self) -> Option<Duration> {
        time_in(&std::fs::read_to_string(&self.file).ok()?)?.checked_sub(self.start)
    }
}

/// The first number of `schedstat`: the nanoseconds in which the thread ran.
fn time_in(schedstat: &str) -> Option<Duration> {
    Some(Duration::from_nanos(schedstat.split_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_the_first_number() {
        assert_eq!(time_in("1500000000 7 3\n"), Some(Duration::from_millis(1500)));
        assert_eq!(time_in(""), None);
        assert_eq!(time_in("x 1 2"), None);
    }

    #[tokio::test]
    async fn runs_on_a_thread_of_its_own_also_after_an_outage() {
        let shape = DemoConfig { pods: 10, churn: 0.0, ..DemoConfig::default() };
        let simulated = Simulated::start("simulated", shape).await.unwrap();
        let running = simulated.running.clone();
        let address = running.server.address();
        // This thread does not run while it waits here, so it cannot be the one that accepts.
        let connect = || std::net::TcpStream::connect(address);
        assert!(connect().is_ok());
        running.cut_off(Duration::from_millis(1)).await.unwrap();
        let stream = connect().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        std::io::Write::write_all(&mut &stream, b"GET /version HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        std::io::Read::read_exact(&mut &stream, &mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        if let Some(cpu) = running.load().cpu {
            assert!(cpu > Duration::ZERO);
        }
        drop(simulated);
        let closed = std::time::Duration::from_secs(60);
        let until = tokio::time::Instant::now() + closed;
        while connect().is_ok() {
            assert!(tokio::time::Instant::now() < until, "it ends with its owner");
            tokio::task::yield_now().await;
        }
    }
}
