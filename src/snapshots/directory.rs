//! The directory of all snapshots, and the space that they may use.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::sync::Arc;

use parking_lot::Mutex;

use super::metrics::SnapshotMetrics;
use super::storage::{Output, Storage};

/// The directory. It removes what is no longer of use.
#[derive(Debug)]
pub(super) struct Directory {
    storage: Box<dyn Storage>,
    max_bytes: u64,
    metrics: SnapshotMetrics,
    state: Mutex<DirectoryState>,
}

#[derive(Debug, Default)]
struct DirectoryState {
    locked: bool,
    /// The files that this process keeps up to date.
    ours: BTreeSet<Arc<str>>,
    /// The length of all files together.
    bytes: u64,
}

/// The end of the names of snapshots, and of files that are still being written.
const SNAPSHOT: &str = ".snapshot";
const UNFINISHED: &str = ".snapshot.new";

/// The ends of the names of files that earlier versions kept here. Nothing reads them any more.
const FORMER: [&str; 2] = [".cluster", ".cluster.new"];

// === impl Directory ===

impl Directory {
    pub(super) fn new(storage: Box<dyn Storage>, max_bytes: u64, metrics: SnapshotMetrics) -> Self {
        Self { storage, max_bytes, metrics, state: Mutex::default() }
    }

    pub(super) fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.storage.open(name)
    }

    /// Begins a new file in place of `name`. It gets this name in [`Self::finish`].
    pub(super) fn begin(&self, name: &Arc<str>) -> io::Result<Box<dyn Output>> {
        let mut state = self.state.lock();
        if !state.locked {
            self.storage.lock()?;
            state.locked = true;
            self.remove_leftovers();
        }
        state.ours.insert(Arc::clone(name));
        let room = self.make_room(&mut state);
        drop(state);
        room.and_then(|()| self.storage.create(&unfinished(name))).inspect_err(|_| self.leave(name))
    }

    /// The new file is complete.
    pub(super) fn finish(&self, name: &str) -> io::Result<()> {
        self.storage.rename(&unfinished(name), name)?;
        let mut state = self.state.lock();
        self.make_room(&mut state)
    }

    /// The new file is given up.
    pub(super) fn give_up(&self, name: &str) {
        self.storage.remove(&unfinished(name)).ok();
        let mut state = self.state.lock();
        state.ours.remove(name);
        self.make_room(&mut state).ok();
    }

    /// The file is of no use any more: a restart must not serve it.
    pub(super) fn remove(&self, name: &str) {
        self.storage.remove(name).ok();
        let mut state = self.state.lock();
        self.make_room(&mut state).ok();
    }

    /// The file is no longer kept up to date, but may still be of use.
    pub(super) fn leave(&self, name: &str) {
        self.state.lock().ours.remove(name);
    }

    /// Takes space for bytes that will be written.
    ///
    /// # Errors
    /// All files together would become too large.
    pub(super) fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.bytes.saturating_add(bytes) > self.max_bytes {
            self.make_room(&mut state)?;
        }
        if state.bytes.saturating_add(bytes) > self.max_bytes {
            let why = "all snapshots together would need more than snapshots.maxBytes";
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        state.bytes += bytes;
        self.metrics.bytes.set(i64::try_from(state.bytes).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Counts the files again, and removes the oldest ones that nobody keeps up to date while there are too many bytes.
    fn make_room(&self, state: &mut DirectoryState) -> io::Result<()> {
        let mut files = self.storage.entries()?;
        files.retain(|file| file.name.ends_with(SNAPSHOT) || file.name.ends_with(UNFINISHED));
        state.bytes = files.iter().map(|file| file.len).sum();
        // Half of the space is left for what will be written.
        files.retain(|file| file.name.ends_with(SNAPSHOT) && !state.ours.contains(&*file.name));
        files.sort_by_key(|file| file.modified);
        for file in files {
            if state.bytes <= self.max_bytes / 2 {
                break;
            }
            self.storage.remove(&file.name)?;
            state.bytes -= file.len;
        }
        self.metrics.bytes.set(i64::try_from(state.bytes).unwrap_or(i64::MAX));
        Ok(())
    }

    /// What a process left behind that was killed while it wrote, or that was of an earlier version.
    fn remove_leftovers(&self) {
        for file in self.storage.entries().unwrap_or_default() {
            if file.name.ends_with(UNFINISHED) || FORMER.iter().any(|end| file.name.ends_with(end)) {
                self.storage.remove(&file.name).ok();
            }
        }
    }
}

fn unfinished(name: &str) -> String {
    format!("{}{UNFINISHED}", name.strip_suffix(SNAPSHOT).unwrap_or(name))
}
