//! Applies events to the cache.

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
        let Some((rv, key)) = expired.last().map(|last| (last.rv, last.key.clone())) else { return Ok(()) };
        let applied = self.writer.delete_together(expired).await;
        self.applied(stream, rv, key, applied)
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
