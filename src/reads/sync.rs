//! Finds the informer of a read, and waits until it is synced.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::resolved::Resolved;
use super::unserved::Unserved;
use super::{ForwardReason, Reads, Waited, spans};
use crate::codec::Form;
use crate::informer::{Informer, NoCoverage};
use crate::meta::{Encoding, errors};

/// A read whose informer has ended looks for another one after this time.
const AGAIN: Duration = Duration::from_millis(10);

impl Reads {
    /// Returns the informer that covers the request, once it is synced; an informer of JSON if the apiserver does not
    /// support the encoding.
    pub(super) async fn synced(&self, read: &mut Resolved) -> Result<(Arc<Informer>, Arc<Form>, Waited), Unserved> {
        let deadline = read.bounded(Instant::now() + self.config.not_synced.wait.min(read.patience));
        let mut waited = Waited::Nothing;
        loop {
            let informer = match self.factory.covering(read.sought()) {
                Ok(informer) => informer,
                Err(NoCoverage::Encoding) if read.json_fallback.is_some() => {
                    read.shape = read.json_fallback.take().unwrap_or(read.shape);
                    read.encoding = Encoding::Json;
                    continue;
                }
                Err(NoCoverage::Outdated) => return Err(Unserved::Outdated),
                Err(reason) => return Err(ForwardReason::from(reason).into()),
            };
            read.may_use(&informer)?;
            if self.serves_while_away(&read.resource.gvr) {
                informer.outlasts();
            }
            if waited == Waited::Nothing {
                spans::informer(&informer);
            }
            if let (true, Some(form)) = (informer.cache().is_ready(), informer.cache().form()) {
                return Ok((informer, read.written(form), waited));
            }
            waited = Waited::Sync;
            if Instant::now() >= deadline || self.waits_in_vain(read, &informer) {
                if self.is_forwarded(read) {
                    return Err(ForwardReason::NotSynced.into());
                }
                return Err(Unserved::Refuse(Box::new(errors::too_many_requests("storage is (re)initializing", 1))));
            }
            // A refusal ends the wait: the loop then tries a narrower informer, or one of another encoding.
            informer.synced(deadline, !informer.is_stuck()).await;
            if informer.has_ended() {
                // Its factory is about to remove it, unless the process ends.
                sleep_until(deadline.min(Instant::now() + AGAIN)).await;
            }
        }
    }

    /// Whether the first state of the informer could not be read, so that the read is forwarded without a wait: the next
    /// attempt may fail as well. While the apiserver does not answer, nothing is gained by forwarding, so the read waits.
    pub(super) fn waits_in_vain(&self, read: &Resolved, informer: &Informer) -> bool {
        informer.is_stuck() && !read.local && self.is_forwarded(read) && self.factory.is_answered()
    }

    /// Whether the read is forwarded when it has waited for an informer in vain.
    fn is_forwarded(&self, read: &Resolved) -> bool {
        self.config.not_synced.forward || read.patience < self.config.not_synced.wait
    }
}

#[cfg(test)]
#[path = "outdated_tests.rs"]
mod outdated_tests;
#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
