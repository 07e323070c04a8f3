//! The life cycle of the process, independent of what it serves: its runtime, its signals, its end.

use std::future::Future;
use std::io;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::config::Config;
use crate::lifecycle::drain::{self, DrainEnd, DrainWatch};
use crate::lifecycle::readiness::Registry;
use crate::lifecycle::signals::{Hangups, Shutdown, Signals};
use crate::lifecycle::{Failure, Fatal};
use crate::telemetry::Metrics;
use crate::telemetry::lines::LinesTo;

/// More threads than this only compete for the same sockets and locks.
const MOST_THREADS: usize = 32;

/// What every part of the process gets at its start. Clones share it.
#[derive(Clone, Debug)]
pub struct Context {
    pub drain: DrainWatch,
    pub fatal: Fatal,
    pub readiness: Registry,
    pub metrics: Metrics,
    pub hangups: Hangups,
}

/// How the process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Everything was released in order.
    Clean,
    /// The deadline passed or a second signal arrived. Connections were cut.
    Forced,
}

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("starting threads: {0}")]
    Runtime(io::Error),
    #[error("signals: {0}")]
    Signals(io::Error),
    #[error("{0}")]
    Start(String),
    #[error("{0}")]
    Fatal(Failure),
}

/// The runtime for all traffic. Without a number it has as many threads as the process may use CPUs. Both the affinity
/// mask and the cgroup's quota are considered.
///
/// # Errors
/// The threads cannot be created.
pub fn runtime(threads: Option<usize>) -> Result<Runtime, ProcessError> {
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers(threads, available))
        .thread_name("traffic")
        .enable_all()
        .build()
        .map_err(ProcessError::Runtime)
}

/// `threads`: as it is set.
fn workers(threads: Option<usize>, available: usize) -> usize {
    threads.unwrap_or(available.min(MOST_THREADS)).max(1)
}

/// Starts the daemon and runs until it is told to end: by a signal, by the failure of a critical task, or because
/// `until` completes. The value that `start` returns lives until the drain is complete, and is dropped before this
/// returns.
///
/// # Errors
/// The daemon could not be started, or a critical task has failed.
pub async fn supervise<T, S, U>(
    context: Context,
    drain: drain::Drain,
    drain_timeout: Duration,
    mut signals: Signals,
    start: S,
    until: impl FnOnce(&T) -> U,
) -> Result<End, ProcessError>
where
    S: Future<Output = Result<T, String>>,
    U: Future<Output = ()>,
{
    // The start may wait for the apiserver. A signal ends that wait too.
    let running = tokio::select! {
        // If the start is complete, the daemon is drained, even if the signal arrived at the same moment.
        biased;
        running = start => running.map_err(ProcessError::Start)?,
        name = signals.recv() => {
            tracing::info!(signal = name, "stopped before everything was started");
            return Ok(End::Clean);
        }
    };
    let mut failure = None;
    tokio::select! {
        name = signals.recv() => {
            let most = drain_timeout;
            tracing::info!(signal = name, ?most, "draining; a second signal (Ctrl-C again) ends the process at once");
        }
        () = until(&running) => tracing::info!("draining"),
        reported = context.fatal.wait() => {
            tracing::error!(task = reported.task, reason = reported.reason, "a required task has ended, draining");
            failure = Some(reported);
        }
    }
    context.readiness.withdraw("draining");
    drain.start(drain_timeout);
    let end = signals.finish(&drain).await;
    drop(running);
    if let Some(failure) = failure {
        return Err(ProcessError::Fatal(failure));
    }
    Ok(match end {
        Shutdown::Drained(DrainEnd::Clean) => End::Clean,
        Shutdown::Drained(DrainEnd::Forced { left }) => {
            tracing::warn!(unfinished = left, "the drain took too long, open connections were cut");
            End::Forced
        }
        Shutdown::Aborted => End::Forced,
    })
}

// === impl Context ===

impl Context {
    /// Creates the context of a daemon: it hears SIGHUPs if it writes log files. See [`Self::new`].
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub fn of_daemon(config: &Config) -> Result<(Self, drain::Drain), ProcessError> {
        let (context, drain) = Self::new();
        let sinks = [config.audit.as_ref().map(|audit| &audit.sink), config.access_log.as_ref()];
        if !sinks.into_iter().flatten().any(|sink| matches!(sink, LinesTo::File(_))) {
            return Ok((context, drain));
        }
        let hangups = Hangups::install().map_err(ProcessError::Signals)?;
        Ok((Self { hangups, ..context }, drain))
    }

    /// Creates the context of a new process, and the handle that starts its drain.
    pub fn new() -> (Self, drain::Drain) {
        let (drain, watch) = drain::channel();
        let context = Self {
            drain: watch,
            fatal: Fatal::new(),
            readiness: Registry::new(),
            metrics: Metrics::new(),
            hangups: Hangups::default(),
        };
        (context, drain)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::lifecycle;

    const SOFT: Duration = Duration::from_secs(5);

    const NEVER: Duration = Duration::MAX;

    #[test]
    fn there_are_as_many_threads_as_cpus_within_a_bound() {
        let most = [1, 2, MOST_THREADS, MOST_THREADS + 1, 1000].map(|available| workers(None, available));
        assert_eq!(most, [1, 2, MOST_THREADS, MOST_THREADS, MOST_THREADS]);
        assert_eq!([0, 1, 1000].map(|threads| workers(Some(threads), 2)), [1, 1, 1000]);
        assert_eq!(runtime(Some(3)).unwrap().metrics().num_workers(), 3);
    }

    /// Supervises a process that gets these signals, and is to end by itself after this time.
    async fn supervised<T>(
        (context, drain): (Context, drain::Drain),
        signals: &[&'static str],
        start: impl Future<Output = Result<T, String>>,
        until: Duration,
    ) -> Result<End, ProcessError> {
        let (sender, received) = mpsc::channel(2);
        signals.iter().for_each(|signal| sender.try_send(*signal).unwrap());
        supervise(context, drain, SOFT, Signals::from_channel(received), start, |_| tokio::time::sleep(until)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_hangs_is_forced() {
        let process = Context::new();
        // The running daemon holds it, so it is never dropped before the drain is over.
        let guard = process.0.drain.guard();
        assert_eq!(supervised(process, &["SIGTERM"], async { Ok(guard) }, NEVER).await.unwrap(), End::Forced);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_task_ends_the_process() {
        let process = Context::new();
        let fatal = process.0.fatal.clone();
        let start = async move {
            lifecycle::spawn_critical("reflector", async {}, &fatal);
            Ok(())
        };
        let end = supervised(process, &[], start, NEVER).await;
        let ProcessError::Fatal(failure) = end.unwrap_err() else { panic!("another error") };
        assert_eq!((failure.task, failure.reason), ("reflector", "ended"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_a_start_that_waits() {
        let end = supervised::<()>(Context::new(), &["SIGINT"], std::future::pending(), NEVER).await;
        assert_eq!(end.unwrap(), End::Clean);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_start_is_told() {
        let end = supervised::<()>(Context::new(), &[], async { Err("no apiserver".to_owned()) }, NEVER).await;
        assert_eq!(end.unwrap_err().to_string(), "no apiserver");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_its_time_is_over() {
        let end = supervised(Context::new(), &[], async { Ok(()) }, Duration::from_secs(3)).await;
        assert_eq!(end.unwrap(), End::Clean);
    }
}
