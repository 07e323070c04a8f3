//! States that are given up, or not read to the end: they do not fit into memory, or an object of them cannot be decoded.
//! Their watches end, and their reads are forwarded until the state is read again.

use tokio::time::{Instant, sleep_until};

use super::Reflector;
use super::end::{GivenUp, Undecodable};
use super::learn::counted;
use super::load::{Load, Sample};
use super::machine::Outcome;
use crate::apiserver::client::UpstreamError;
use crate::cache::Full;
use crate::codec::json::ListMeta;

/// After this many answers that cannot be decoded, the next one would be no better. Fewer may be the fault of something
/// between the daemon and the apiserver.
const FEW: u32 = 3;

/// No object with its metadata is smaller than this, so the number of objects gives a lower bound of the memory.
const LEAST: usize = 512;
const TRUSTED: u8 = 4;

// === impl Reflector ===

impl Reflector {
    /// Counts an answer that cannot be decoded. The watch would be opened from the same revision again and again, and
    /// its readers would hear nothing more. So the state is given up after a few of them, and at once if it was given
    /// up for that before and has not been followed since. `None` if it is not given up.
    pub(super) fn undecodable(&mut self, error: &UpstreamError) -> Option<Outcome> {
        if !error.is_undecodable() {
            return None;
        }
        let at = self.at();
        self.undecodable.add(at);
        let is_known = self.handle.is_undecodable();
        (is_known || self.undecodable.count >= FEW).then(|| {
            self.undecodable = Undecodable::default();
            self.give_up(GivenUp::Undecodable, error.to_string())
        })
    }

    pub(super) fn give_up(&mut self, reason: GivenUp, why: String) -> Outcome {
        let resource = &self.lister.resource.gvr;
        let namespace = self.lister.namespace.as_deref().unwrap_or_default();
        let what_to_do = match reason {
            GivenUp::Memory => "not cached, its reads are forwarded: raise limits.memory, or the memory limit",
            GivenUp::Undecodable => "not cached, its reads are forwarded until all of its objects can be decoded",
        };
        if self.writer.is_pinned() {
            tracing::error!(%resource, namespace, why, "pinned, but {what_to_do}");
        } else {
            tracing::warn!(%resource, namespace, why, "{what_to_do}");
        }
        self.stream = None;
        self.writer.not_ready(&why);
        self.handle.update(|status| {
            (status.too_large, status.undecodable) = (reason == GivenUp::Memory, reason == GivenUp::Undecodable);
            (status.last_error, status.last_error_at) = (Some(why), Some(Instant::now()));
        });
        Outcome::GivenUp
    }

    /// Before the first state is read: estimates from the number of objects whether it can fit.
    pub(super) fn expect(&mut self, meta: &ListMeta) -> Result<(), Outcome> {
        if !self.writer.resource_version().is_zero() {
            return Ok(());
        }
        let counted = counted(meta);
        let count = counted.unwrap_or(1);
        let need = match &mut self.sample {
            Some(sample) if sample.trusted > 0 => {
                sample.trusted -= 1;
                let Sample { bytes, objects, .. } = *sample;
                // With a selector, the apiserver does not tell the number: it is more than what was read.
                if counted.is_some() { (bytes / objects.max(1)).saturating_mul(count) } else { bytes }
            }
            _ => count.saturating_mul(LEAST),
        };
        let fits = self.writer.account().load(need);
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

    /// Waits until the next attempt.
    pub(super) async fn refused(&mut self, until: Instant) -> Outcome {
        loop {
            tokio::select! {
                () = sleep_until(until) => return Outcome::Elapsed,
                // The claim belongs to a state that was given up.
                Some(_) = self.claims.recv() => {}
            }
        }
    }
}
