//! SIGTERM and SIGINT: the first signal starts the drain, the second one aborts the process. SIGHUP: log files are
//! opened again; where there are none, it is as SIGTERM.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::drain::{Drain, DrainEnd};
use super::spawn;

/// Tells those who write log files of each SIGHUP. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Hangups {
    sender: watch::Sender<()>,
    /// Somebody hears them.
    is_heard: bool,
}

/// A stream of termination signals.
#[derive(Debug)]
pub struct Signals {
    received: mpsc::Receiver<&'static str>,
}

/// How the process ends after its first signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    Drained(DrainEnd),
    /// A second signal came before the drain was complete.
    Aborted,
}

// === impl Hangups ===

impl Hangups {
    /// Installs the handler for SIGHUP. From then on it ends the process no more.
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let mut hangup = signal(SignalKind::hangup())?;
        let hangups = Self { is_heard: true, ..Self::default() };
        let told = hangups.clone();
        spawn("hangups", async move {
            while hangup.recv().await.is_some() {
                told.send();
            }
        });
        Ok(hangups)
    }

    /// Tells of a SIGHUP.
    pub fn send(&self) {
        self.sender.send_replace(());
    }

    /// Changes with each SIGHUP from now on.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.sender.subscribe()
    }
}

// === impl Signals ===

impl Signals {
    /// Installs handlers for SIGTERM and SIGINT, and for SIGHUP unless log files are opened again then. Fails if they cannot be
    /// installed.
    pub fn install(hangups: &Hangups) -> io::Result<Self> {
        let mut hangup = signal(SignalKind::hangup())?;
        let is_heard = hangups.is_heard;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Two are enough: a third signal has no other meaning than the second one.
        let (sender, received) = mpsc::channel(2);
        spawn("signals", async move {
            loop {
                let name = tokio::select! {
                    Some(()) = terminate.recv() => "SIGTERM",
                    Some(()) = interrupt.recv() => "SIGINT",
                    Some(()) = hangup.recv(), if !is_heard => "SIGHUP",
                    else => return,
                };
                if sender.try_send(name).is_err_and(|error| matches!(error, mpsc::error::TrySendError::Closed(_))) {
                    return;
                }
            }
        });
        Ok(Self { received })
    }

    /// Receives signals from a channel instead of the operating system, for tests and embedders.
    pub fn from_channel(received: mpsc::Receiver<&'static str>) -> Self {
        Self { received }
    }

    /// Waits for the next signal and returns its name. Never returns if no more signals can arrive.
    pub async fn recv(&mut self) -> &'static str {
        match self.received.recv().await {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    /// Waits for the end of a drain that was already started, or for a signal that aborts it.
    pub async fn finish(&mut self, drain: &Drain) -> Shutdown {
        tokio::select! {
            end = drain.completed() => Shutdown::Drained(end),
            name = self.recv() => {
                tracing::warn!(target: "informerd::lifecycle::signals", signal = name, "second signal, aborting the drain");
                drain.force();
                Shutdown::Aborted
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drain;

    #[tokio::test(start_paused = true)]
    async fn the_second_aborts() {
        let (drain, watch) = drain::channel();
        let guard = watch.guard();
        let (sender, received) = mpsc::channel(2);
        sender.send("SIGTERM").await.unwrap();
        sender.send("SIGINT").await.unwrap();
        let started = tokio::time::Instant::now();
        let mut signals = Signals::from_channel(received);
        signals.recv().await;
        drain.start(Duration::from_secs(5));
        assert_eq!(signals.finish(&drain).await, Shutdown::Aborted);
        assert_eq!(started.elapsed(), Duration::ZERO);
        watch.forced().await;
        drop(guard);
    }
}
