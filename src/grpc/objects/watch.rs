//! The encoder of one watch over gRPC. It produces frames on demand, from its start through resets to its goodbye. It
//! has no task of its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

use super::feed::{Conflated, Feed, Item};
use super::opening::{Begun, Opened, first, is_passing, open};
use super::service::Objects;
use super::terms::{Delivery, KnownObjects, RequestedWatch, Terms};
use crate::grpc::call::{Caller, Error, Retiring, Right, SMALL, duration, room};
use crate::grpc::messages::{Content, Events, Message, Messages, SharedGroup, WatchMessage, render};
use crate::grpc::pb::v1;
use crate::grpc::pb::v1::watch_response::Frame;
use crate::grpc::pb::v1::{goodbye, reset};
use crate::lifecycle::backoff::jittered;
use crate::lifecycle::drain::DrainSignal;
use crate::lifecycle::ending::Ending;
use crate::memory::Reservation;
use crate::meta::{EventType, ResourceVersion};
use crate::reads::plan::Freshness;
use crate::reads::{EndReason, OpenWatch, ReadSource, WantedEncoding, WatchFrom, WatcherEvent};
use crate::telemetry::gauge::Raised;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One watch, which encodes its events when it is polled.
pub(super) struct TypedWatch {
    terms: Arc<Terms>,
    delivery: Delivery,
    /// The watches that send the same events in the same form.
    shared: Arc<SharedGroup>,
    /// The permission for the whole selection.
    right: Right,
    objects: Objects,
    phase: Phase,
    /// The last poll stopped early to let others run.
    is_paused: bool,
    /// Frames to send before any other.
    ready: Vec<Frame>,
    /// All changes up to this revision were delivered. Zero before the snapshot is complete.
    complete: ResourceVersion,
    /// The objects that the client already has, for the snapshot that is being sent. `None` if there are none.
    known: Option<Box<KnownObjects>>,
    /// The number of objects of the snapshot so far.
    count: u64,
    in_snapshot: bool,
    /// An item that did not belong in the frame before.
    kept: Option<Box<Item>>,
    delay: Option<Pin<Box<Sleep>>>,
    batch: Batch,
    /// The memory of the frame that is being collected, if it is large. The message takes it along.
    room: Option<Box<Reservation>>,
    /// The signal that the process will end. `None` after the watch was asked to end.
    ending: Option<Ending>,
    /// The signal that the connection must end, for a watch that is its own call.
    retiring: Option<DrainSignal>,
    _open: Raised,
}

enum Phase {
    Opening(Boxed<Opened>),
    Open { feed: Feed, source: ReadSource },
    Over,
}

/// Events that wait for their frame.
#[derive(Default)]
struct Batch {
    events: Events,
    bytes: usize,
    /// Once the batch is delivered, all changes up to this revision are.
    complete: ResourceVersion,
    /// When the oldest event came from the apiserver. Events with an unknown time do not count.
    oldest: Option<Instant>,
}

/// A frame ends with the event that exceeds this size in bytes. If memory is not plentiful, the limit is [`SMALL`].
const FRAME_BYTES: usize = 256 << 10;
/// The approximate maximum size of an event without its object, in bytes.
const EVENT_OVERHEAD: usize = 512;
/// The delay before another attempt, after a reset that cannot be served yet, or because the watch was too slow.
const RETRY: Duration = Duration::from_secs(1);

// === impl TypedWatch ===

impl TypedWatch {
    /// Opens a watch with these terms.
    ///
    /// # Errors
    /// An error that occurs before the stream starts.
    pub(super) async fn open(objects: &Objects, asked: RequestedWatch) -> Result<Self, Status> {
        let RequestedWatch { mut terms, delivery, rendering, known, mut grants } = asked;
        let Begun { opened, resumed, reset } = grants.recorded(first(&objects.reads, &terms).await)?;
        // The announced encoding stays the same until the end of the watch, even after resets.
        terms.selection.encoding = WantedEncoding::Only(opened.source.encoding());
        let known = known.filter(|_| !resumed);
        let terms = Arc::new(terms);
        let shared = objects.shared.group(&terms.selection.gvr, opened.source.encoding(), &rendering);
        let encoding = render::encoding(opened.source.encoding()).into();
        // Frames are taken from the end.
        let mut ready = vec![Frame::Started(v1::Started { resumed, encoding })];
        if let Some(reason) = reset {
            objects.metrics.resets.inc();
            // A client that sent what it has gets only the difference.
            if known.is_none() {
                ready.insert(0, Frame::Reset(v1::Reset { reason: reason.into() }));
            }
        }
        let complete = match terms.in_cache.from {
            WatchFrom::After(rv) if resumed => rv,
            _ => ResourceVersion::ZERO,
        };
        objects.metrics.watches.inc();
        let mut watch = Self {
            objects: objects.clone(),
            phase: Phase::Over,
            is_paused: false,
            ready,
            complete,
            known,
            count: 0,
            in_snapshot: !resumed,
            kept: None,
            delay: None,
            batch: Batch::default(),
            room: None,
            ending: Some(Ending::new(&objects.drain, objects.drain_spread, Duration::ZERO)),
            retiring: None,
            _open: Raised::new(&objects.metrics.watches_open),
            right: grants.open(),
            delivery,
            shared,
            terms,
        };
        watch.begin(opened);
        Ok(watch)
    }

    /// Returns the next frame; `None` once the watch has ended with a goodbye.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchMessage, Error>>> {
        self.is_paused = false;
        if self.is_over() {
            return Poll::Ready(None);
        }
        // Nothing is sent after the permission is revoked.
        if let Poll::Ready(error) = self.poll_gone(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        self.poll_drain(cx);
        let content = match self.ready.pop() {
            Some(frame) => {
                if self.ready.is_empty() {
                    self.ready = Vec::new();
                }
                Content::from(frame)
            }
            None => match ready!(self.poll_next(cx)) {
                Some(Ok(content)) => content,
                Some(Err(error)) => {
                    self.phase = Phase::Over;
                    return Poll::Ready(Some(Err(error)));
                }
                None => return Poll::Ready(None),
            },
        };
        Poll::Ready(Some(Ok(self.message(content))))
    }

    /// Returns why the permission was revoked; that ends the watch. Use it for a watch that must not be polled for
    /// frames now.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if matches!(self.phase, Phase::Over) {
            return Poll::Pending;
        }
        let error = ready!(self.right.poll_gone(cx));
        self.ready.clear();
        self.phase = Phase::Over;
        Poll::Ready(error)
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Content, Error>>> {
        loop {
            match &mut self.phase {
                Phase::Over => return Poll::Ready(None),
                Phase::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(opened) => {
                        self.begin(opened);
                        // It is woken when what it reads now must not be read any more.
                        if let Poll::Ready(error) = self.poll_gone(cx) {
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                    Err(_) if Instant::now() >= self.terms.in_cache.deadline => {
                        let goodbye = self.goodbye(goodbye::Reason::MaxAge);
                        return Poll::Ready(Some(Ok(goodbye.into())));
                    }
                    Err(refusal) if is_passing(&refusal) => {
                        self.phase = Phase::Opening(self.again(RETRY));
                    }
                    Err(refusal) => {
                        return Poll::Ready(Some(Err(Error::refusal(&self.terms.selection.gvr, refusal))));
                    }
                },
                Phase::Open { .. } => match ready!(self.poll_open(cx)) {
                    Ok(content) => return Poll::Ready(Some(content.and_then(|content| self.fit(content)))),
                    Err(reason) => return Poll::Ready(Some(Ok(self.ended(reason).into()))),
                },
            }
        }
    }

    /// Collects events until there are enough, or until no more are available. An object that is damaged is an error, after
    /// a frame with the events before it, from which the client can resume.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<Result<Content, Error>, EndReason>> {
        loop {
            let is_full = self.batch.events.len() >= self.delivery.max_batch || self.batch.bytes >= self.most();
            if is_full || self.is_all() && !self.batch.events.is_empty() {
                return Poll::Ready(Ok(Ok(self.flush())));
            }
            let Phase::Open { feed, source } = &mut self.phase else { return Poll::Pending };
            let next = match self.kept.take() {
                Some(item) => Poll::Ready(Ok(*item)),
                None => feed.poll_next(cx),
            };
            self.is_paused = next.is_pending() && feed.is_paused();
            match next {
                Poll::Pending if self.batch.events.is_empty() => {
                    self.room = None;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let wait = self.delivery.max_batch_delay;
                    if !wait.is_zero() {
                        let delay = self.delay.get_or_insert_with(|| Box::pin(sleep(wait)));
                        ready!(delay.as_mut().poll(cx));
                    }
                    return Poll::Ready(Ok(Ok(self.flush())));
                }
                Poll::Ready(Err(reason)) if self.batch.events.is_empty() => return Poll::Ready(Err(reason)),
                // The feed returns the reason again on the next poll.
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(Ok(self.flush()))),
                Poll::Ready(Ok(item)) => match item.event {
                    WatcherEvent::Bookmark { .. } if !self.batch.events.is_empty() => {
                        self.kept = Some(Box::new(item));
                        return Poll::Ready(Ok(Ok(self.flush())));
                    }
                    WatcherEvent::Bookmark { initial_end: true, .. } => {
                        self.complete = item.complete;
                        self.in_snapshot = false;
                        let gone = self.known.take().map(|known| known.objects.into_keys().collect());
                        let end = v1::SnapshotEnd { count: self.count, gone_uids: gone.unwrap_or_default() };
                        return Poll::Ready(Ok(Ok(Frame::SnapshotEnd(end).into())));
                    }
                    WatcherEvent::Bookmark { .. } => {
                        self.complete = self.complete.max(item.complete);
                        let upstream_silence = Some(duration(source.silence()));
                        let bookmark = Frame::Bookmark(v1::Bookmark { upstream_silence });
                        return Poll::Ready(Ok(Ok(bookmark.into())));
                    }
                    WatcherEvent::Error(_) => return Poll::Ready(Err(EndReason::Stopped)),
                    WatcherEvent::Event { kind, object, rv } => {
                        let known = self.known.as_mut().filter(|_| self.in_snapshot);
                        let known = known.and_then(|known| known.objects.remove(object.attributes.uid()));
                        let Some(shown) = as_known(kind, known.as_deref(), object.rv) else {
                            self.count += 1;
                            continue;
                        };
                        let event = if self.in_snapshot {
                            self.shared.encode(&source.form, shown, &object, rv)
                        } else {
                            self.shared.event(&source.form, shown, &object, rv)
                        };
                        let event = match event {
                            Ok(event) => event,
                            // The events before it can be sent.
                            Err(_) if !self.batch.events.is_empty() => {
                                let event = WatcherEvent::Event { kind, object, rv };
                                self.kept = Some(Box::new(Item { event, ..item }));
                                return Poll::Ready(Ok(Ok(self.flush())));
                            }
                            Err(damaged) => return Poll::Ready(Ok(Err(damaged.into()))),
                        };
                        if self.in_snapshot {
                            self.count += 1;
                        } else {
                            self.batch.complete = self.batch.complete.max(item.complete);
                        }
                        self.batch.oldest = self.batch.oldest.or(item.received);
                        self.batch.bytes += event.len() + EVENT_OVERHEAD;
                        self.batch.events.push(event);
                    }
                },
            }
        }
    }

    /// Whether no event can be added to the batch now, and none is waited for.
    fn is_all(&self) -> bool {
        let is_caught_up = matches!(&self.phase, Phase::Open { feed, .. } if feed.is_caught_up());
        is_caught_up && self.kept.is_none() && self.delivery.max_batch_delay.is_zero()
    }

    /// The size limit in bytes of the current frame. Memory is reserved only once the frame is not small.
    fn most(&mut self) -> usize {
        if self.batch.bytes >= SMALL && self.room.is_none() {
            self.room = self.objects.ledger.spare(FRAME_BYTES).ok().map(Box::new);
        }
        if self.room.is_some() { FRAME_BYTES } else { SMALL }
    }

    /// Reserves memory for a frame that is far larger than its reservation because of one object. Without enough
    /// memory the watch fails, and the client can resume after the frame before.
    fn fit(&mut self, content: Content) -> Result<Content, Error> {
        let Content::Events(events) = &content else { return Ok(content) };
        let bytes = events.iter().map(|event| event.len() + EVENT_OVERHEAD).sum();
        if bytes > self.room.as_ref().map_or(SMALL, |room| room.bytes()) + SMALL {
            self.room = None;
            self.room = Some(Box::new(room::reserve(&self.objects.ledger, bytes)?));
        }
        Ok(content)
    }

    fn flush(&mut self) -> Content {
        self.delay = None;
        let batch = std::mem::take(&mut self.batch);
        self.complete = self.complete.max(batch.complete);
        self.objects.metrics.events.inc_by(batch.events.len() as u64);
        if let Phase::Open { source, .. } = &self.phase {
            source.sent(batch.bytes.saturating_sub(batch.events.len() * EVENT_OVERHEAD));
        }
        if let Some(received) = batch.oldest {
            self.objects.metrics.event_lag.observe(received.elapsed());
        }
        Content::Events(batch.events)
    }

    /// Makes the watch say goodbye when its connection must end.
    pub(super) fn until(self, retiring: &Retiring) -> Self {
        Self { retiring: Some(retiring.wait()), ..self }
    }

    fn begin(&mut self, opened: OpenWatch) {
        let OpenWatch { source, watcher, proof } = opened;
        self.right.reads(&self.terms.selection.gvr, proof);
        let (ledger, metrics) = (&self.objects.ledger, &self.objects.metrics);
        let feed = match self.terms.conflate {
            true => Feed::Conflated(Conflated::start(watcher, self.in_snapshot, ledger, metrics)),
            false => Feed::Direct(watcher),
        };
        self.phase = Phase::Open { feed, source };
    }

    /// Handles the end of the watch in the cache: the client gets a reset or a goodbye.
    fn ended(&mut self, reason: EndReason) -> Frame {
        let reason = match reason {
            EndReason::Deadline => return self.goodbye(goodbye::Reason::MaxAge),
            EndReason::Drained => return self.goodbye(goodbye::Reason::Draining),
            // It was asked to end when it had ended already.
            _ if self.ending.is_none() => return self.goodbye(goodbye::Reason::Draining),
            EndReason::TooSlow => reset::Reason::TooSlow,
            EndReason::Relisted => reset::Reason::Relisted,
            EndReason::NotReady | EndReason::Stopped => reset::Reason::Restarted,
        };
        self.objects.metrics.resets.inc();
        self.complete = ResourceVersion::ZERO;
        self.known = None;
        (self.count, self.in_snapshot, self.kept, self.batch) = (0, true, None, Batch::default());
        // The same lack of memory or speed would end it again.
        let after = if reason == reset::Reason::TooSlow { RETRY } else { Duration::ZERO };
        self.phase = Phase::Opening(self.again(after));
        Frame::Reset(v1::Reset { reason: reason.into() })
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over) && self.ready.is_empty()
    }

    /// Ends the watch with its last frame, even if its consumer does not read frames now.
    pub(super) fn leave(mut self, reason: goodbye::Reason) -> WatchMessage {
        let goodbye = self.goodbye(reason);
        self.message(goodbye.into())
    }

    fn message(&mut self, content: Content) -> WatchMessage {
        let message = WatchMessage::at(self.delivery.tokens, self.complete, content).within(self.room.take());
        self.objects.metrics.frames.inc();
        self.objects.metrics.bytes.inc_by(message.len() as u64);
        message
    }

    fn goodbye(&mut self, reason: goodbye::Reason) -> Frame {
        self.phase = Phase::Over;
        let retry_after = (reason == goodbye::Reason::Draining).then(|| duration(RETRY));
        Frame::Goodbye(v1::Goodbye { reason: reason.into(), retry_after, error: None })
    }

    /// Begins with a new snapshot.
    fn again(&self, after: Duration) -> Boxed<Opened> {
        let (objects, terms) = (self.objects.clone(), Arc::clone(&self.terms));
        Box::pin(async move {
            if !after.is_zero() {
                sleep(jittered(after)).await;
            }
            open(&objects.reads, &terms, WatchFrom::State(Freshness::Any)).await
        })
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) {
        if let Some(retiring) = &mut self.retiring
            && Pin::new(retiring).poll(cx).is_ready()
        {
            self.retiring = None;
            // The token does not cover unsent events. They are sent again on the next connection.
            let goodbye = self.goodbye(goodbye::Reason::ConnectionAge);
            self.ready = vec![goodbye];
        }
        if let Some(ending) = &mut self.ending
            && ending.poll(cx)
        {
            self.ending = None;
            match &mut self.phase {
                Phase::Open { feed, .. } => feed.end(),
                Phase::Opening(_) => {
                    let goodbye = self.goodbye(goodbye::Reason::Draining);
                    self.ready.insert(0, goodbye);
                }
                Phase::Over => {}
            }
        }
    }
}

impl Messages for TypedWatch {
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Status>>> {
        self.poll_frame(cx).map(|message| message.map(|message| message.map(Message::Watch).map_err(Status::from)))
    }

    fn is_caught_up(&self) -> bool {
        self.is_all() && self.ready.is_empty()
    }

    fn is_paused(&self) -> bool {
        self.is_paused
    }
}

/// The event for a client that has revision `held` of the object; `None` if the client already has this state.
fn as_known(kind: EventType, held: Option<&str>, rv: ResourceVersion) -> Option<v1::event::Type> {
    match (kind, held) {
        (EventType::Added, Some(held)) if held == rv.to_string() => None,
        (EventType::Added, Some(_)) | (EventType::Modified, _) => Some(v1::event::Type::Modified),
        (EventType::Added, None) => Some(v1::event::Type::Added),
        (EventType::Deleted, _) => Some(v1::event::Type::Deleted),
    }
}

impl Objects {
    /// Opens a watch for a caller.
    pub(super) async fn watch_for(&self, caller: &Caller, request: v1::WatchRequest) -> Result<TypedWatch, Status> {
        TypedWatch::open(self, RequestedWatch::new(self, caller, request).await?).await
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "model_tests.rs"]
mod model_tests;
