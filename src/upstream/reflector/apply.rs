//! Applies events of the reflector to the watch cache.

use tokio::time::Instant;

use super::Reflector;
use super::machine::Outcome;
use super::stream::EventStream;
use crate::cache::ApplyError;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion};

// === impl Reflector ===

impl Reflector {
    pub(super) async fn apply(
        &mut self,
        stream: &mut EventStream,
        kind: EventType,
        object: Object,
    ) -> Result<(), Outcome> {
        let rv = object.rv;
        if rv == stream.last && stream.last_key.as_ref() == Some(&object.key) {
            // The same event again.
            return Ok(());
        }
        let key = object.key.clone();
        let applied = self.writer.apply(kind, object).await;
        self.applied(stream, rv, key, applied)
    }

    /// Applies deletions of one revision.
    pub(super) async fn expire(&mut self, stream: &mut EventStream, mut expired: Vec<Object>) -> Result<(), Outcome> {
        expired.retain(|object| object.rv != stream.last || stream.last_key.as_ref() != Some(&object.key));
        // Those that were applied before the stream broke. Others of that revision contradict the state, which is read
        // again.
        let ours = self.writer.resource_version();
        expired.retain(|object| object.rv != ours || self.writer.holds(&object.key));
        let Some((rv, key)) = expired.last().map(|last| (last.rv, last.key.clone())) else { return Ok(()) };
        let applied = self.writer.delete_together(expired).await;
        self.applied(stream, rv, key, applied)
    }

    /// The revision after which the watch goes on. Deletions of the last revision may be missing, so all of them are asked
    /// for again.
    pub(super) fn goes_on_after(&self) -> ResourceVersion {
        let rv = self.writer.resource_version();
        if self.waited == Some(rv) { ResourceVersion(rv.0.saturating_sub(1)) } else { rv }
    }

    fn applied(
        &mut self,
        stream: &mut EventStream,
        rv: ResourceVersion,
        key: ObjectKey,
        applied: Result<(), ApplyError>,
    ) -> Result<(), Outcome> {
        match applied {
            Ok(()) => {
                (stream.last, stream.last_key) = (rv, Some(key));
                self.handle.event(rv, Instant::now());
                Ok(())
            }
            Err(error @ (ApplyError::WentBack { .. } | ApplyError::NotSynced)) => {
                self.note(&error.to_string(), 0);
                Err(Outcome::WentBack)
            }
        }
    }
}
