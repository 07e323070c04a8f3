//! Follows the stream of a watch: reads one event after the other, and applies it to the watch cache.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Reflector;
use super::end::Undecodable;
use super::machine::Outcome;
use super::stream::EventStream;
use crate::apiserver::UpstreamError;
use crate::apiserver::client::DEAD_AFTER;
use crate::cache::ApplyError;
use crate::codec::json::WatchFrame;
use crate::meta::{EventType, Object, ObjectKey, ResourceVersion};

/// How long after a deletion to wait for other deletions of the same revision. They arrive together.
pub(super) const TOGETHER: Duration = Duration::from_millis(50);

/// After this time, what the apiserver sent right after those deletions has arrived, too, or the connection was dead and has ended.
pub(super) const DOUBT: Duration = DEAD_AFTER.saturating_add(LATE);

/// A machine that has stood still for longer is not up to date. A busy one is always late.
pub(super) const LATE: Duration = Duration::from_secs(1);

/// Maximum number of deletions held back. A lease has 1000 objects (`--lease-max-object-count`).
const EXPIRED: usize = 4096;

// === impl Reflector ===

impl Reflector {
    /// Until the stream ends, fails or contradicts the cache, or the cache must give up its state.
    pub(super) async fn follow(&mut self) -> Outcome {
        let Some(mut stream) = self.stream.take() else { return Outcome::Broken };
        let mut heard = false;
        // Deletions of one revision, of which more may follow. If the stream ends before they are applied, they arrive
        // again.
        let mut expired: Vec<Object> = Vec::new();
        // Until when they wait for the next one. Nothing but the next one makes this later.
        let mut together: Option<Instant> = None;
        // Until when it is not sure that those which were applied are all, and their revision. A stream that begins in doubt tells
        // them again first.
        let mut unsure: Option<(Instant, ResourceVersion)> = None;
        let mut recalled = std::pin::pin!(self.writer.account().recalled());
        let handle = self.handle.clone();
        let mut doubted = std::pin::pin!(handle.doubted());
        handle.follows(stream.connection);
        let mut silenced = std::pin::pin!(handle.silenced());
        loop {
            let until = together.unwrap_or(stream.deadline);
            let frame = tokio::select! {
                frame = stream.next(until) => frame,
                Some(claim) = self.claims.recv() => {
                    self.consider(claim);
                    continue;
                }
                () = sleep_until(unsure.map_or(until, |(at, _)| at)), if unsure.is_some() && together.is_none() => {
                    if let Some((at, rv)) = unsure.take() {
                        if at.elapsed() > LATE {
                            // The machine has stood still: what it was sent meanwhile is not read yet.
                            unsure = Some((Instant::now() + DOUBT, rv));
                        } else if rv == self.writer.resource_version() {
                            self.writer.ends_doubt();
                        }
                    }
                    continue;
                }
                () = &mut recalled => return self.recalled(),
                why = &mut doubted => return self.contradicted(&why),
                silence = &mut silenced => match self.silent(&silence, &stream, heard) {
                    Some(outcome) => return outcome,
                    None => {
                        silenced.set(handle.silenced());
                        continue;
                    }
                },
            };
            let held = expired.len();
            let (expires, complete) = match &frame {
                Ok(Some(WatchFrame::Event { kind: EventType::Deleted, object, .. }))
                    if self.lister.resource.gvr.is_events() =>
                {
                    (true, held == EXPIRED || expired.last().is_some_and(|last| last.rv != object.rv))
                }
                Ok(Some(WatchFrame::Error(_)) | None) => (false, false),
                Ok(Some(_)) | Err(UpstreamError::Timeout { .. }) => (false, true),
                Err(_) => (false, false),
            };
            if complete {
                together = None;
                // Something came after them.
                let sure = frame.is_ok() && held < EXPIRED;
                if let Err(outcome) = self.expire(&mut stream, std::mem::take(&mut expired), sure).await {
                    return outcome;
                }
            }
            match frame {
                Ok(Some(WatchFrame::Event { kind, object, type_meta })) => {
                    if !heard {
                        self.seen(&type_meta);
                        self.learn_items().await;
                    }
                    heard = true;
                    if expires {
                        together = Some(Instant::now() + TOGETHER);
                        expired.push(object);
                    } else if let Err(outcome) = self.apply(&mut stream, kind, object).await {
                        return outcome;
                    }
                }
                Ok(Some(WatchFrame::Bookmark { rv, object, initial_events_end, .. })) => {
                    heard = true;
                    if rv < stream.last {
                        self.note(&format!("a bookmark went back from {} to {rv}", stream.last), 0);
                        self.writer.lacks_after(rv);
                        return Outcome::WentBack;
                    }
                    stream.last = rv;
                    self.undecodable = Undecodable::default();
                    self.handle.bookmark(Instant::now());
                    if !initial_events_end {
                        self.writer.set_bookmark_template(object);
                    }
                    self.writer.progress(rv);
                    self.handle.reached(self.writer.resource_version());
                }
                Ok(Some(WatchFrame::Error(status))) => return self.failed(&UpstreamError::Status(Box::new(status))),
                Ok(None) => return Outcome::Ended { heard },
                Err(UpstreamError::Timeout { .. }) if held > 0 => {
                    unsure = Some((Instant::now() + DOUBT, self.writer.resource_version()));
                }
                Err(error) => return self.broken(&error),
            }
        }
    }

    async fn apply(&mut self, stream: &mut EventStream, kind: EventType, object: Object) -> Result<(), Outcome> {
        let rv = object.rv;
        if rv == stream.last && stream.last_key.as_ref() == Some(&object.key) {
            // The same event again.
            return Ok(());
        }
        let key = object.key.clone();
        let applied = self.writer.apply(kind, object).await;
        self.applied(stream, rv, key, applied)
    }

    /// Applies deletions of one revision. Unless it is `sure` that they are all, the next watch asks for them again.
    async fn expire(&mut self, stream: &mut EventStream, mut expired: Vec<Object>, sure: bool) -> Result<(), Outcome> {
        expired.retain(|object| object.rv != stream.last || stream.last_key.as_ref() != Some(&object.key));
        // Those that were applied before the stream broke. Others of that revision contradict the state, which is read
        // again.
        let ours = self.writer.resource_version();
        expired.retain(|object| object.rv != ours || self.writer.holds(&object.key));
        let Some((rv, key)) = expired.last().map(|last| (last.rv, last.key.clone())) else { return Ok(()) };
        let applied = self.writer.delete_together(expired, sure).await;
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
                // What comes late was missing.
                self.writer.lacks_after(ResourceVersion(rv.0.saturating_sub(1)));
                Err(Outcome::WentBack)
            }
        }
    }
}
