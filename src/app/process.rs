//! The life cycle of the process, independent of what it serves: its runtime, its signals, its end.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::config::Config;
use crate::lifecycle::Fatal;
use crate::lifecycle::drain::{self, Drain, DrainEnd, DrainWatch};
use crate::lifecycle::readiness::Registry;
use crate::lifecycle::signals::{Hangups, Shutdown, Signals};
use crate::telemetry::Metrics;
use crate::telemetry::lines::LinesTo;
use crate::telemetry::otel::Otel;

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

/// The runtime for all traffic. Without a number it has as many threads as the process may use CPUs. Both the affinity
/// mask and the cgroup's quota are considered.
///
/// # Errors
/// The threads cannot be created.
pub fn runtime(threads: Option<usize>) -> Result<Runtime, String> {
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers(threads, available))
        .thread_name("traffic")
        .enable_all()
        .build()
        .map_err(|error| format!("starting threads: {error}"))
}

/// `threads`: as it is set.
fn workers(threads: Option<usize>, available: usize) -> usize {
    threads.unwrap_or(available.min(MOST_THREADS)).max(1)
}

/// Starts the daemon, exports its metrics and runs until it is told to end: by a signal, by the failure of a critical
/// task, or because `until` completes. The value that `start` returns lives until the drain is complete, and is dropped
/// before this returns.
///
/// # Errors
/// The daemon could not be started, or a critical task has failed.
pub async fn serve<T>(
    context: Context,
    drain: Drain,
    config: &Config,
    otel: &Otel,
    start: impl Future<Output = Result<T, String>>,
    until: impl Future<Output = ()>,
) -> Result<Shutdown, String> {
    let signals = Signals::install(&context.hangups).map_err(|error| format!("signals: {error}"))?;
    otel.export(context.metrics.clone());
    supervise(context, drain, config.drain_timeout, signals, start, until).await
}

/// The same, for a process that gets these signals.
async fn supervise<T>(
    context: Context,
    drain: Drain,
    drain_timeout: Duration,
    mut signals: Signals,
    start: impl Future<Output = Result<T, String>>,
    until: impl Future<Output = ()>,
) -> Result<Shutdown, String> {
    // The start may wait for the apiserver. A signal ends that wait too.
    let running = tokio::select! {
        // If the start is complete, the daemon is drained, even if the signal arrived at the same moment.
        biased;
        running = start => running?,
        name = signals.recv() => {
            tracing::info!(signal = name, "stopped before everything was started");
            return Ok(Shutdown::Drained(DrainEnd::Clean));
        }
    };
    let mut failure = None;
    tokio::select! {
        name = signals.recv() => {
            let most = drain_timeout;
            tracing::info!(signal = name, ?most, "draining; a second signal (Ctrl-C again) ends the process at once");
        }
        () = until => tracing::info!("draining"),
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
        return Err(failure.to_string());
    }
    if let Shutdown::Drained(DrainEnd::Forced { left }) = end {
        tracing::warn!(unfinished = left, "the drain took too long, open connections were cut");
    }
    Ok(end)
}

// === impl Context ===

impl Context {
    /// Creates the context of a daemon: it hears SIGHUPs if it writes log files. See [`Self::new`].
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub fn of_daemon(config: &Config) -> Result<(Self, Drain), String> {
        let (context, drain) = Self::new();
        let sinks = [config.audit.as_ref().map(|audit| &audit.sink), config.access_log.as_ref()];
        if !sinks.into_iter().flatten().any(|sink| matches!(sink, LinesTo::File(_))) {
            return Ok((context, drain));
        }
        let hangups = Hangups::install().map_err(|error| format!("signals: {error}"))?;
        Ok((Self { hangups, ..context }, drain))
    }

    /// Creates the context of a new process, and the handle that starts its drain.
    pub fn new() -> (Self, Drain) {
        let (drain, watch) = drain::channel();
        let context = Self {
            drain: watch,
            fatal: Fatal::new(),
            readiness: Registry::default(),
            metrics: Metrics::default(),
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
        (context, drain): (Context, Drain),
        signals: &[&'static str],
        start: impl Future<Output = Result<T, String>>,
        until: Duration,
    ) -> Result<Shutdown, String> {
        let (sender, received) = mpsc::channel(2);
        signals.iter().for_each(|signal| sender.try_send(*signal).unwrap());
        let until = async { tokio::time::sleep(until).await };
        supervise(context, drain, SOFT, Signals::from_channel(received), start, until).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_hangs_is_forced() {
        let process = Context::new();
        // The running daemon holds it, so it is never dropped before the drain is over.
        let guard = process.0.drain.guard();
        let end = supervised(process, &["SIGTERM"], async { Ok(guard) }, NEVER).await.unwrap();
        assert_eq!(end, Shutdown::Drained(DrainEnd::Forced { left: 1 }));
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
        assert_eq!(end.unwrap_err(), "task reflector ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_a_start_that_waits() {
        let end = supervised::<()>(Context::new(), &["SIGINT"], std::future::pending(), NEVER).await;
        assert_eq!(end.unwrap(), Shutdown::Drained(DrainEnd::Clean));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_start_is_told() {
        let end = supervised::<()>(Context::new(), &[], async { Err("no apiserver".to_owned()) }, NEVER).await;
        assert_eq!(end.unwrap_err(), "no apiserver");
    }

    #[tokio::test(start_paused = true)]
    async fn ends_when_its_time_is_over() {
        let end = supervised(Context::new(), &[], async { Ok(()) }, Duration::from_secs(3)).await;
        assert_eq!(end.unwrap(), Shutdown::Drained(DrainEnd::Clean));
    }
}
