//! One file while it is written: first the state, under another name, and then the events.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::block::{BlockWriter, TARGET};
use super::header::Header;
use super::record::Records;
use super::seal::Seal;
use super::shared::{Inner, Snapshot};
use super::storage::Output;
use crate::cache::{self, Recorded, Recorder, WatchCache};
use crate::codec::Form;
use crate::meta::Scope;

/// The file of one cache. Its calls block the thread.
#[derive(Debug)]
pub(super) struct Journal {
    inner: Arc<Inner>,
    name: Arc<str>,
    out: Box<dyn Output>,
    blocks: BlockWriter,
    records: Records,
    /// The state, and the events up to when the file was begun.
    base_bytes: u64,
    /// The events after that.
    events_bytes: u64,
    has_base: bool,
}

/// A state is written with at most this many bytes per second, so that other users of the disk notice little.
const BYTES_PER_SECOND: u64 = 64 << 20;

/// A file is written again once its new events are larger than what it began with, and larger than this.
const LEAST: u64 = 4 << 20;

// === impl Journal ===

impl Journal {
    /// Writes the state of a cache to a new file, which then takes the place of the old one. Also returns what follows this
    /// state. `None` if the cache has none.
    ///
    /// # Errors
    /// It cannot be written. The old file is as it was.
    pub(super) fn begin(snapshot: &Snapshot, cache: &WatchCache) -> io::Result<Option<(Self, Recorder)>> {
        let (Some((recorder, state)), Some(form)) = (cache.record(), cache.form()) else { return Ok(None) };
        let Snapshot { inner, name, .. } = snapshot;
        let out = inner.directory.begin(name)?;
        let written = Self::write_state(snapshot, cache, &state, &form, out).and_then(|mut journal| {
            journal.out.sync()?;
            inner.directory.finish(name)?;
            Ok(Some((journal, recorder)))
        });
        written.inspect_err(|_| inner.directory.give_up(name))
    }

    fn write_state(
        snapshot: &Snapshot,
        cache: &WatchCache,
        state: &cache::Snapshot,
        form: &Form,
        mut out: Box<dyn Output>,
    ) -> io::Result<Self> {
        let Snapshot { inner, identity, name } = snapshot;
        let key = inner.config.key.as_ref();
        let header = Header::new(identity, form, key.is_some(), now()).to_bytes()?;
        inner.directory.reserve(header.len() as u64)?;
        out.write_all(&header)?;
        let mut journal = Self {
            inner: Arc::clone(inner),
            name: Arc::clone(name),
            out,
            blocks: BlockWriter::new(Seal::new(key, &header)?),
            records: Records::default(),
            base_bytes: 0,
            events_bytes: 0,
            has_base: false,
        };
        if let Some(template) = cache.bookmark_template() {
            journal.records.bookmark(&template);
        }
        for object in state.range(&Scope::default(), None) {
            journal.records.object(object).map_err(io::Error::other)?;
            if journal.records.len() >= TARGET {
                let bytes = journal.flush()?;
                journal.base_bytes += bytes;
                pause(Duration::from_secs(1).mul_f64(bytes as f64 / BYTES_PER_SECOND as f64));
            }
        }
        journal.records.state(state.rv(), state.len());
        journal.base_bytes += journal.flush()?;
        // Events need no dictionaries.
        journal.records = Records::default();
        Ok(journal)
    }

    /// Appends events.
    ///
    /// # Errors
    /// They cannot be written, or not all of them. The file must not be appended to any more.
    pub(super) fn append(&mut self, recorded: &Recorded) -> io::Result<()> {
        for event in &recorded.events {
            self.records.event(event).map_err(io::Error::other)?;
            if self.records.len() >= TARGET {
                self.events_bytes += self.flush()?;
            }
        }
        if let Some(rv) = recorded.rv {
            self.records.progress(rv, now());
        }
        self.events_bytes += self.flush()?;
        if recorded.rv.is_some() && !std::mem::replace(&mut self.has_base, true) {
            self.base_bytes += std::mem::take(&mut self.events_bytes);
        }
        Ok(())
    }

    /// Whether the new events are so many times larger than what the file began with.
    pub(super) fn is_long(&self, times: u64) -> bool {
        self.has_base && self.events_bytes > self.base_bytes.max(LEAST).saturating_mul(times)
    }

    fn flush(&mut self) -> io::Result<u64> {
        let content = self.records.take();
        if content.is_empty() {
            return Ok(0);
        }
        // Compressed, it needs less, but for a few bytes.
        let bytes = self.blocks.write(&mut *self.out, &content)?;
        self.inner.directory.reserve(bytes)?;
        self.inner.metrics.written_bytes.inc_by(bytes);
        Ok(bytes)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.inner.directory.leave(&self.name);
    }
}

#[expect(clippy::disallowed_methods, reason = "a thread that waits for the disk")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    Timestamp::now().as_second()
}
