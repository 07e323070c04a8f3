//! Processor time of a process, more exact than `/proc/PID/stat`, which counts in hundredths of a second.

use std::collections::HashMap;
use std::fs;

use anyhow::Context;

use super::client::cpu_seconds;

/// Counts from its start on.
pub(crate) struct Meter {
    pid: u32,
    threads: HashMap<String, u64>,
    rough: f64,
}

/// User and system time are each cut to a hundredth of a second, at the start and at the end.
const ROUGH_ERROR: f64 = 0.04;

// === impl Meter ===

impl Meter {
    pub(crate) fn start(pid: u32) -> anyhow::Result<Self> {
        Ok(Self { pid, threads: threads(pid)?, rough: cpu_seconds(&pid.to_string())? })
    }

    /// Seconds since the start. What threads did that have ended since is known only roughly.
    pub(crate) fn seconds(&self) -> anyhow::Result<f64> {
        let now = threads(self.pid)?;
        let since = |(thread, nanos): (&String, &u64)| nanos - self.threads.get(thread).unwrap_or(&0).min(nanos);
        let exact = now.iter().map(since).sum::<u64>() as f64 / 1e9;
        let rough = cpu_seconds(&self.pid.to_string())? - self.rough;
        Ok(exact.max(rough - ROUGH_ERROR))
    }
}

/// Nanoseconds that each thread has run.
fn threads(pid: u32) -> anyhow::Result<HashMap<String, u64>> {
    let mut threads = HashMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        // A thread may end at any moment.
        let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
        let nanos = text.split_whitespace().next().context("unexpected schedstat")?.parse()?;
        threads.insert(entry.file_name().to_string_lossy().into_owned(), nanos);
    }
    Ok(threads)
}
