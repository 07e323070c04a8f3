//! Packs the objects of a cache that nobody has read for a while.
//!
//! The task visits all objects again and again, in key order. An object that was read since the last visit stays plain.
//! If more bytes stay plain than may, the next pass packs what was read less, so what is read most stays plain longest,
//! and one scan of everything does not displace it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::shared::SharedCache;
use super::store::{Snapshot, StateId};
use super::walk::LOOKS;
use super::writer::Writer;
use crate::memory::purge_again;
use crate::meta::{Object, ObjectKey, Raw, Scope};
use crate::packing::{MOST_READS, PackingForm, SAMPLES, Visit};

/// The packer's task.
pub(super) struct PackerTask {
    shared: Arc<SharedCache>,
    /// Bytes that were read more often than this stay plain.
    bar: u8,
    /// The state that the last pass left without anything to do, until an object is read.
    done: Option<StateId>,
    /// Bytes that were packed since freed memory was last returned to the system.
    freed: usize,
}

/// The objects of a state that is being read, so that they are packed before all of them are there.
#[derive(Debug, Default)]
pub struct Arriving {
    /// Objects that are still plain.
    plain: Vec<Arc<Object>>,
    /// What all objects would need if they were plain.
    bytes: usize,
    training: bool,
}

/// Time between two passes: an object that is read as often stays plain.
const PERIOD: Duration = Duration::from_secs(30);

/// The same for [`PackingForm::Packed`]. A pass without anything to do is skipped.
const PERIOD_PACKED: Duration = Duration::from_secs(2);

/// Time before the first pass of a new state. At the start, other caches are still being filled, and clients read.
const SETTLE: Duration = Duration::from_secs(5);

/// Bytes packed in one step: a fifth of a millisecond. A larger object is a step of its own.
const STEP: usize = 128 << 10;

/// Freed memory is returned to the system when this many bytes were packed, or when nothing is left to pack. New memory
/// costs time after that.
const FREED: usize = 16 << 20;

/// Samples taken in one step.
const SAMPLES_STEP: usize = 16;

/// Time between two steps that packed something, so that packing takes a small part of one processor.
const PAUSE: Duration = Duration::from_millis(1);

/// Earlier objects that are packed with each new one while a state is read.
const CATCH_UP: usize = 1;

// === impl PackerTask ===

impl PackerTask {
    pub(super) fn new(shared: Arc<SharedCache>) -> Self {
        // Objects may be packed before the first pass, while they arrive.
        let mut task = Self { shared, bar: 0, done: None, freed: FREED };
        task.raise_bar();
        task
    }

    /// Runs until dropped, or until the cache has stopped for good.
    pub(super) async fn run(mut self) {
        let form = self.shared.keeper.packer.form();
        if form == PackingForm::Plain {
            return;
        }
        let period = if form == PackingForm::Packed { PERIOD_PACKED } else { PERIOD };
        loop {
            self.shared.ready.wait_ready().await;
            if !self.shared.ready.readiness().is_ready() {
                // The writer is gone.
                return;
            }
            sleep(SETTLE).await;
            while let Some(snapshot) = self.shared.snapshot() {
                if self.is_due(&snapshot) {
                    self.train(&snapshot).await;
                    drop(snapshot);
                    self.pass().await;
                } else {
                    drop(snapshot);
                    self.purge(1);
                }
                sleep(period).await;
            }
        }
    }

    fn is_due(&self, snapshot: &Snapshot) -> bool {
        let used = self.shared.config.budget.used();
        let wanted = self.shared.keeper.packer.is_wanted(used, snapshot.bytes());
        self.shared.keeper.packer.set_active(wanted);
        wanted && (self.done != Some(snapshot.id()) || self.shared.keeper.packer.is_read())
    }

    /// Trains the first dictionary, or another one if it no longer fits.
    async fn train(&self, snapshot: &Snapshot) {
        let packer = &self.shared.keeper.packer;
        if !packer.needs_training() {
            return;
        }
        let stride = snapshot.len().div_ceil(SAMPLES).max(1);
        let mut samples = Vec::with_capacity(SAMPLES);
        for (i, object) in snapshot.store().iter().step_by(stride).enumerate() {
            samples.extend(sample(object));
            if i % SAMPLES_STEP == SAMPLES_STEP - 1 {
                tokio::task::yield_now().await;
            }
        }
        let (packer, bytes) = (packer.clone(), snapshot.bytes());
        // It takes a few tenths of a second.
        tokio::task::spawn_blocking(move || packer.train(&samples, bytes)).await.ok();
        purge_again();
    }

    /// While too many bytes are hot, each pass packs what was read a little more.
    fn raise_bar(&mut self) {
        let packing = self.shared.keeper.packer.packing();
        self.bar = match packing.config().hot_bytes {
            0 => MOST_READS,
            _ if packing.is_hot() => (self.bar * 2 + 1).min(MOST_READS),
            _ => 0,
        };
    }

    /// Visits all objects once.
    async fn pass(&mut self) {
        let (mut after, mut hot, mut changed): (Option<ObjectKey>, usize, bool) = (None, 0, false);
        let mut state = None;
        self.shared.keeper.packer.begin_pass();
        loop {
            // Between two steps, nothing keeps an old state alive.
            let Some(snapshot) = self.shared.snapshot() else { return };
            state.get_or_insert(snapshot.id());
            let (mut looks, mut packed) = (0, 0);
            let scope = Scope::default();
            let mut last = None;
            for object in snapshot.range(&scope, after.as_ref().map(ObjectKey::as_str)) {
                last = Some(object.key.clone());
                match object.pack(&self.shared.keeper.packer, self.bar) {
                    Visit::Hot(bytes) => hot += bytes,
                    Visit::NowPacked { plain, .. } => packed += plain,
                    Visit::Plain | Visit::Packed => {}
                }
                looks += 1;
                if packed >= STEP || looks == LOOKS {
                    break;
                }
            }
            drop(snapshot);
            let is_over = packed < STEP && looks < LOOKS;
            if last.is_some() {
                after = last;
            }
            changed |= packed > 0;
            self.freed += packed;
            if packed > 0 {
                self.count_again();
                sleep(PAUSE).await;
            } else {
                tokio::task::yield_now().await;
            }
            if is_over {
                break;
            }
        }
        self.shared.keeper.packer.set_hot(hot);
        self.purge(if changed { FREED } else { 1 });
        self.raise_bar();
        self.done = state.filter(|_| hot == 0 && !changed);
    }

    /// Counts the cache again after objects were packed.
    fn count_again(&self) {
        let state = self.shared.state.lock();
        if let Some(current) = &state.current {
            self.shared.keeper.count_again(current.store(), &state.history);
        }
    }

    /// Returns freed memory to the system if objects of so many bytes were packed.
    fn purge(&mut self, least: usize) {
        if self.freed >= least {
            self.freed = 0;
            purge_again();
        }
    }
}

// === impl Arriving ===

impl Arriving {
    /// Takes an object that has arrived. Once the state is large enough to be packed, this trains a dictionary in the
    /// background, and then packs this object and some of the earlier ones. Returns the bytes that are saved by that.
    pub fn take(&mut self, writer: &Writer, object: &Arc<Object>) -> usize {
        self.take_into(&writer.shared, object)
    }

    pub(super) fn take_into(&mut self, shared: &SharedCache, object: &Arc<Object>) -> usize {
        let packer = &shared.keeper.packer;
        if packer.form() == PackingForm::Plain {
            return 0;
        }
        self.bytes += object.size();
        self.plain.push(Arc::clone(object));
        let started = self.training;
        if !started && !self.plain.len().is_multiple_of(SAMPLES) {
            // Looked at now and then only: it needs a lock that all caches share.
            return 0;
        }
        if !started && packer.is_wanted_early(shared.config.budget.used(), self.bytes) {
            self.training = true;
            packer.set_active(true);
            if packer.needs_training() {
                let stride = self.plain.len().div_ceil(SAMPLES).max(1);
                let samples: Vec<_> = self.plain.iter().step_by(stride).filter_map(|object| sample(object)).collect();
                let (packer, bytes) = (packer.clone(), self.bytes);
                tokio::task::spawn_blocking(move || packer.train(&samples, bytes));
            }
        }
        if !self.training || !packer.is_trained() {
            return 0;
        }
        let from = self.plain.len().saturating_sub(1 + CATCH_UP);
        let visits = self.plain.drain(from..).map(|object| object.pack(packer, MOST_READS));
        visits
            .map(|visit| if let Visit::NowPacked { plain, packed } = visit { plain.saturating_sub(packed) } else { 0 })
            .sum()
    }
}

/// The bytes of an object, for training.
fn sample(object: &Object) -> Option<Bytes> {
    object.raw_for_upkeep().ok().map(Raw::framed)
}

#[cfg(test)]
#[path = "packer_task_tests.rs"]
mod tests;
