//! Logs with one record per line: a file that is rotated, or standard output. Writers never wait: if the queue is
//! full, the line is dropped and counted.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tokio::fs;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::lifecycle::{Fatal, spawn_supervised};

/// The most lines that may wait to be written. A line is about a kilobyte.
const MAX_WAITING: usize = 8192;
/// The most bytes that may wait: a client may send a request target that is much longer.
const MAX_WAITING_BYTES: usize = 32 << 20;
const BATCH: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinesTo {
    Stdout,
    File {
        path: PathBuf,
        /// The size in bytes at which a file is rotated.
        max_size: u64,
        /// The number of rotated files to keep. `PATH.1` is the newest.
        max_files: usize,
    },
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
        size: u64,
        max_size: u64,
        max_files: usize,
        /// The last write failed, possibly in the middle of a line.
        torn: bool,
    },
}

// === impl Lines ===

impl Lines {
    /// Opens the log and starts its task.
    ///
    /// # Errors
    /// The file cannot be opened, for a reason other than a full disk.
    pub fn start(log: &'static str, to: &LinesTo, counts: Arc<LineCounts>, fatal: &Fatal) -> Result<Self, LinesError> {
        let writer = match to {
            LinesTo::Stdout => {
                let failed = |error| LinesError { log, path: "/dev/stdout".into(), error };
                let own = std::io::stdout().as_fd().try_clone_to_owned().map_err(failed)?;
                Writer::Stdout(fs::File::from_std(own.into()))
            }
            LinesTo::File { path, max_size, max_files } => {
                let failed = |error| LinesError { log, path: path.clone(), error };
                let (file, size) = match open(path) {
                    Ok(file) => {
                        let size = file.metadata().map_err(failed)?.len();
                        (Some(fs::File::from_std(file)), size)
                    }
                    // As at runtime, lines are dropped and counted until there is space.
                    Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                        tracing::error!(log, path = %path.display(), %error, "cannot open the log, trying again");
                        (None, 0)
                    }
                    Err(error) => return Err(failed(error)),
                };
                Writer::File { file, path: path.clone(), size, max_size: *max_size, max_files: *max_files, torn: false }
            }
        };
        let (lines, receiver) = mpsc::channel(MAX_WAITING);
        let waiting = Arc::<AtomicUsize>::default();
        spawn_supervised(log, write(log, writer, receiver, Arc::clone(&waiting), Arc::clone(&counts)), fatal);
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
    waiting: Arc<AtomicUsize>,
    counts: Arc<LineCounts>,
) {
    let mut batch = Vec::new();
    let mut failing = false;
    while lines.recv_many(&mut batch, BATCH).await > 0 {
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
fn open(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

// === impl Writer ===

impl Writer {
    async fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => say(stdout, lines).await,
            Self::File { file, path, size, max_size, max_files, torn } => {
                if *size > 0 && *size + lines.len() as u64 > *max_size {
                    *file = None;
                    put_aside(path, *max_files).await?;
                    *size = 0;
                }
                let file = match file {
                    Some(file) => file,
                    closed => {
                        let opened = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&*path).await?;
                        closed.insert(opened)
                    }
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
                // Of what could not be written, nothing may be there. It puts no other lines aside.
                *size = match file.metadata().await {
                    Ok(metadata) if *torn => metadata.len(),
                    _ => *size + lines.len() as u64,
                };
                written
            }
        }
    }
}

async fn say(out: &mut fs::File, lines: &[u8]) -> io::Result<()> {
    out.write_all(lines).await?;
    out.flush().await
}

/// Renames `PATH` to `PATH.1`, that to `PATH.2`, and so on. The last file is deleted.
async fn put_aside(path: &Path, max_files: usize) -> io::Result<()> {
    let numbered = |n: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    // Another program may have removed any of the files.
    let there = |done: io::Result<()>| match done {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    for n in (1..max_files).rev() {
        there(fs::rename(numbered(n), numbered(n + 1)).await)?;
    }
    there(if max_files == 0 { fs::remove_file(path).await } else { fs::rename(path, numbered(1)).await })
}
