//! States that do not fit into the memory of the caches: they are not read, not read to the end, or given up.

use super::Reflector;
use super::end::GivenUp;
use super::load::{Load, Sample};
use super::machine::Outcome;
use crate::cache::Full;
use crate::codec::json::ListMeta;

/// No object with its metadata is smaller than this, so the number of objects gives a lower bound of the memory.
const LEAST: usize = 512;
const TRUSTED: u8 = 4;

// === impl Reflector ===

impl Reflector {
    /// Before the first state is read: estimates from the number of objects whether it can fit.
    pub(super) fn expect(&mut self, meta: &ListMeta) -> Result<(), Outcome> {
        if !self.writer.resource_version().is_zero() {
            return Ok(());
        }
        let more = meta.remaining_item_count.and_then(|count| usize::try_from(count).ok());
        let count = more.map_or(1, |more| more.saturating_add(1));
        let need = match &mut self.sample {
            Some(sample) if sample.trusted > 0 => {
                sample.trusted -= 1;
                let Sample { bytes, objects, .. } = *sample;
                // With a selector, the apiserver does not tell the number: it is more than what was read.
                if more.is_some() { (bytes / objects.max(1)).saturating_mul(count) } else { bytes }
            }
            _ => count.saturating_mul(LEAST),
        };
        let fits = self.writer.load(need);
        fits.map_err(|full| self.refuse(full))
    }

    /// A state that was being read does not fit.
    pub(super) fn full(&mut self, full: Full, load: &Load) -> Outcome {
        self.sample = Some(Sample { bytes: load.bytes, objects: load.objects, trusted: TRUSTED });
        self.refuse(full)
    }

    /// All caches together use too much memory, and this one was chosen to give up its state.
    pub(super) fn recalled(&mut self) -> Outcome {
        let why = "memory is short, and this cache was given up for the others";
        self.give_up(GivenUp::Memory, why.to_owned())
    }

    fn refuse(&mut self, full: Full) -> Outcome {
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        let (need, room, limit) = (mib(full.need), mib(full.room), mib(full.limit));
        self.give_up(
            GivenUp::Memory,
            format!("does not fit: at least {need} MiB needed, {room} of {limit} MiB free for caches"),
        )
    }
}
