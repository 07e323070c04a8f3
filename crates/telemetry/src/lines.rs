//! Logs with one record per line: a file, or standard output. Writers never wait: if the queue is full, the line is
//! dropped and counted. A program that rotates the file renames it and sends SIGHUP, and the file is opened again.

use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tokio::fs;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, watch};

use informerd_lifecycle::signals::Hangups;
use informerd_lifecycle::{Fatal, spawn_supervised};

/// The most lines that may wait to be written. A line is about a kilobyte.
const MAX_WAITING: usize = 8192;
/// The most bytes that may wait: a client may send a request target that is much longer.
const MAX_WAITING_BYTES: usize = 32 << 20;
const BATCH: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinesTo {
    Stdout,
    File(PathBuf),
}

#[derive(Debug, thiserror::Error)]
#[error("{log} log, {path}: {error}", path = path.display())]
pub struct LinesError {
    log: &'static str,
    path: PathBuf,
    error: io::Error,
}

/// The counters of one log.
#[derive(Debug, Default)]
pub struct LineCounts {
    pub written: Counter,
    /// Lines that found the queue full or could not be written.
    pub dropped: Counter,
}

/// One log. Its own task writes it.
#[derive(Debug)]
pub struct Lines {
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
    counts: Arc<LineCounts>,
}

enum Writer {
    Stdout(fs::File),
    File {
        file: Option<fs::File>,
        path: PathBuf,
        /// The last write failed, possibly in the middle of a line.
        torn: bool,
        /// The file is no longer the one that the path names, which could not be opened.
        stale: bool,
    },
}

// === impl Lines ===

impl Lines {
    /// Opens the log and starts its task.
    ///
    /// # Errors
    /// The file cannot be opened, for a reason other than a full disk.
    pub fn start(
        log: &'static str,
        to: &LinesTo,
        counts: Arc<LineCounts>,
        hangups: &Hangups,
        fatal: &Fatal,
    ) -> Result<Self, LinesError> {
        // Before the file is opened: what is renamed from now on is heard.
        let hangups = hangups.subscribe();
        let writer = match to {
            LinesTo::Stdout => {
                let failed = |error| LinesError { log, path: "/dev/stdout".into(), error };
                let own = std::io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
                Writer::Stdout(fs::File::from_std(own.into()))
            }
            LinesTo::File(path) => {
                let file = match options().open(path) {
                    Ok(file) => Some(fs::File::from_std(file)),
                    // As at runtime, lines are dropped and counted until there is space.
                    Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                        tracing::error!(log, path = %path.display(), %error, "cannot open the log, trying again");
                        None
                    }
                    Err(error) => return Err(LinesError { log, path: path.clone(), error }),
                };
                Writer::File { file, path: path.clone(), torn: false, stale: false }
            }
        };
        let (lines, receiver) = mpsc::channel(MAX_WAITING);
        let waiting = Arc::<AtomicUsize>::default();
        let written = (Arc::clone(&waiting), Arc::clone(&counts));
        spawn_supervised(log, write(log, writer, receiver, hangups, written), fatal);
        Ok(Self { lines, waiting, counts })
    }

    /// Queues a line as JSON, if there is room for it.
    pub fn write(&self, line: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(line) else { return self.drop_one() };
        line.push(b'\n');
        let bytes = line.len();
        let fits = self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes <= MAX_WAITING_BYTES;
        if !fits || self.lines.try_send(line).is_err() {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.drop_one();
        }
    }

    fn drop_one(&self) {
        self.counts.dropped.inc();
    }
}

/// Writes queued lines until all senders are dropped.
async fn write(
    log: &'static str,
    mut writer: Writer,
    mut lines: mpsc::Receiver<Vec<u8>>,
    mut hangups: watch::Receiver<()>,
    (waiting, counts): (Arc<AtomicUsize>, Arc<LineCounts>),
) {
    let mut batch = Vec::new();
    let mut failing = false;
    loop {
        tokio::select! {
            biased;
            // Nothing is being written now: no line is lost, or divided between the files.
            Ok(()) = hangups.changed() => {
                if let Err(error) = writer.reopen().await {
                    tracing::error!(log, %error, "cannot open the log again, trying again with the next lines");
                }
                continue;
            }
            received = lines.recv_many(&mut batch, BATCH) => if received == 0 { return },
        }
        let count = batch.len() as u64;
        let joined: Vec<u8> = batch.drain(..).flatten().collect();
        let result = writer.write(&joined).await;
        waiting.fetch_sub(joined.len(), Ordering::Relaxed);
        let counter = if result.is_ok() { &counts.written } else { &counts.dropped };
        counter.inc_by(count);
        match result {
            Ok(()) if std::mem::take(&mut failing) => tracing::info!(log, "the log can be written again"),
            Err(error) if !std::mem::replace(&mut failing, true) => {
                tracing::error!(log, %error, "the log cannot be written");
            }
            _ => {}
        }
    }
}

/// The log shows who read what, so only the daemon's user may read it.
fn options() -> std::fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    options
}

// === impl Writer ===

impl Writer {
    async fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => say(stdout, lines).await,
            Self::File { file, path, torn, stale } => {
                if *stale && let Ok(opened) = fs::OpenOptions::from(options()).open(&*path).await {
                    (*file, *torn, *stale) = (Some(opened), false, false);
                }
                let file = match file {
                    Some(file) => file,
                    closed => closed.insert(fs::OpenOptions::from(options()).open(&*path).await?),
                };
                let written = async {
                    // End the partly written line.
                    if *torn {
                        file.write_all(b"\n").await?;
                    }
                    say(file, lines).await
                };
                let written = written.await;
                *torn = written.is_err();
                written
            }
        }
    }

    /// Opens the file by its path again. If that fails, the old one is kept, and it is tried again before each write.
    async fn reopen(&mut self) -> io::Result<()> {
        if let Self::File { file, path, torn, stale } = self {
            *stale = true;
            let opened = fs::OpenOptions::from(options()).open(&*path).await?;
            // If it is the same file, a line that was partly written is still its last one.
            *torn &= opened.metadata().await?.len() > 0;
            (*file, *stale) = (Some(opened), false);
        }
        Ok(())
    }
}

async fn say(out: &mut fs::File, lines: &[u8]) -> io::Result<()> {
    out.write_all(lines).await?;
    out.flush().await
}
