//! States that are given up: they do not fit into memory, or an object of them cannot be decoded. Their watches end,
//! and their reads are forwarded until the state is read again.

use tokio::time::{Instant, sleep_until};

use super::Reflector;
use super::end::{GivenUp, Undecodable};
use super::machine::Outcome;
use crate::apiserver::client::UpstreamError;

/// After this many answers that cannot be decoded, the next one would be no better. Fewer may be the fault of something
/// between the daemon and the apiserver.
const FEW: u32 = 3;

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
            status.given_up = Some(reason);
            (status.last_error, status.last_error_at) = (Some(why), Some(Instant::now()));
        });
        Outcome::GivenUp
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
