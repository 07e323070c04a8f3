//! The encoder of a watch: a body that polls its watcher. All events that are ready go out in one frame. A single event
//! is sent at once.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame};

use super::body::BoxError;
use super::copies::{Copies, Waiting};
use super::event_frames::event_frame;
use super::list_body::PART;
use crate::auth::Lease;
use crate::auth::audit::Entry;
use crate::codec::{Form, Shape, Slices};
use crate::http::door::Connection;
use crate::http::record::HttpMetrics;
use crate::lifecycle::ending::Ending;
use crate::memory::{Cut, Ledger, StallGuards};
use crate::meta::{Encoding, ResourceVersion, errors};
use crate::passthrough::websocket;
use crate::reads::{CacheWatcher, WatchAnswer, WatchSource, WatcherEvent};
use crate::telemetry::gauge::Raised;

/// If a watch ends within a second without an event, clients treat it as a failure and start again with a list.
pub(in crate::http) const SHORTEST: Duration = Duration::from_millis(1200);

/// A frame ends with the event that makes it exceed one of these limits.
const FRAME_BYTES: usize = 64 << 10;
const FRAME_EVENTS: usize = 64;

/// The body of a watch, which encodes its events when it is polled. An empty frame says that others should run before it goes on.
pub(in crate::http) struct WatchBody {
    written: Written,
    /// `None` once the watch has ended.
    events: Option<Leased>,
    ending: Ending,
    /// The watch was told to end.
    ends: bool,
    /// The last frame ended with a pause: the next frame is empty.
    pauses: bool,
    /// Each event is sent as a WebSocket message.
    messages: bool,
    metrics: Arc<HttpMetrics>,
    copies: Copies,
    waiting: Waiting,
    /// Gives up the watch if its client does not take copies.
    guards: Option<(StallGuards, Cut)>,
    _open: Raised,
}

/// How events are written.
struct Written {
    form: Arc<Form>,
    shape: Shape,
}

/// The events of a watch, for as long as its client is authorized.
struct Leased {
    source: WatchSource,
    /// Comes next. There was no room for it. Boxed, because it is seldom there.
    next: Option<Box<Item>>,
    /// Boxed, because a process has thousands of idle watches.
    right: Box<Right>,
}

/// What the watch is allowed by, and what ends with it.
struct Right {
    lease: Lease,
    /// Takes no more requests once nobody can say whether the client still has the right.
    connection: Weak<Connection>,
    /// Records the end of the watch when it is dropped.
    _audit_entry: Option<Box<Entry>>,
}

/// An event, and where the watch is split before it: see [`CacheWatcher::split_at`].
type Item = (WatcherEvent, Option<ResourceVersion>);

// === impl WatchBody ===

impl WatchBody {
    /// `audit_entry` is dropped when the watch ends.
    pub(in crate::http) fn new(
        answer: WatchAnswer,
        lease: Lease,
        audit_entry: Option<Entry>,
        ending: Ending,
        metrics: &Arc<HttpMetrics>,
        ledger: &Ledger,
    ) -> Self {
        metrics.watches_total.inc();
        let right = Right { lease, connection: Weak::new(), _audit_entry: audit_entry.map(Box::new) };
        Self {
            written: Written { form: answer.form, shape: answer.shape },
            events: Some(Leased { source: answer.source, next: None, right: Box::new(right) }),
            ending,
            ends: false,
            pauses: false,
            messages: false,
            metrics: Arc::clone(metrics),
            copies: Copies::new(ledger),
            waiting: Waiting::default(),
            guards: None,
            _open: Raised::new(&metrics.watches_open),
        }
    }

    /// The same watch. Whoever sends it must know of [`Self::cut`].
    pub(super) fn guarded(self, stall_guards: &StallGuards) -> Self {
        Self { guards: Some((stall_guards.clone(), Cut::default())), ..self }
    }

    /// The same watch, which goes over this connection.
    pub(in crate::http) fn over(mut self, connection: &Arc<Connection>) -> Self {
        if let Some(events) = &mut self.events {
            events.right.connection = Arc::downgrade(connection);
        }
        self
    }

    /// Is cut once its client does not take copies.
    pub(in crate::http) fn cut(&self) -> Cut {
        self.guards.as_ref().map(|(_, cut)| cut.clone()).unwrap_or_default()
    }

    /// The same events as WebSocket messages, for [`super::websocket::serve`].
    pub(in crate::http) fn into_messages(mut self) -> Self {
        self.messages = true;
        self
    }

    /// The next events. An empty frame means that there are none now, or none any more.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Slices> {
        ready!(self.copies.poll_taken(cx));
        let Some(events) = &mut self.events else { return Poll::Ready(Slices::new()) };
        let mut frame = Slices::new();
        let mut count = 0;
        let mut over = false;
        let mut lag = None;
        while !over && frame.len() < FRAME_BYTES && count < FRAME_EVENTS {
            match events.poll_next(cx) {
                Poll::Pending => break,
                Poll::Ready(None) => over = true,
                Poll::Ready(Some((mut item, split_at))) => {
                    if let WatcherEvent::Event { object, rv, .. } = &item
                        && self.copies.reserve(self.written.form.copied(object, *rv, self.written.shape)).is_err()
                    {
                        if !frame.is_empty() || self.waiting.poll_late(cx).is_pending() {
                            events.next = Some(Box::new((item, split_at)));
                            break;
                        }
                        // Its client continues after the last event that it got.
                        let Some(rv) = split_at else {
                            over = true;
                            break;
                        };
                        item = WatcherEvent::Error(Box::new(errors::expired_watch(rv.get(), rv.get())));
                    }
                    let (event, is_last) = self.written.event(&item, &events.source);
                    frame.append(if self.messages { self.written.message(event) } else { event });
                    count += 1;
                    lag = lag.or_else(|| events.source.watcher().and_then(CacheWatcher::lag));
                    // Nothing may follow an error event.
                    if is_last {
                        self.metrics.watches_failed.inc();
                        over = true;
                    }
                    // The next poll, which follows once this frame is taken, looks again.
                    if events.source.watcher().is_some_and(CacheWatcher::is_caught_up) {
                        break;
                    }
                }
            }
        }
        if over {
            self.events = None;
        }
        if frame.is_empty() {
            return Poll::Ready(frame);
        }
        self.metrics.watch_events.inc_by(count as u64);
        if let Some(lag) = lag {
            self.metrics.event_lag.observe(lag);
        }
        self.metrics.watch_bytes.inc_by(frame.len() as u64);
        self.waiting.end();
        Poll::Ready(if self.copies.is_empty() { frame } else { self.hold(frame) })
    }

    /// The frame has copies.
    fn hold(&mut self, frame: Slices) -> Slices {
        let mut frame = self.copies.hold(frame);
        let Some((stall_guards, cut)) = &self.guards else { return frame };
        let stall_guard = stall_guards.hold_with((), cut.clone());
        let mut guarded = Slices::new();
        stall_guard
            .take(|held| {
                while !frame.is_empty() {
                    let mut part = frame.split_to(frame.len().min(PART));
                    part.hold(stall_guard.give(part.len()));
                    guarded.append(part);
                }
                *held = None;
            })
            .ok();
        guarded
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) {
        if self.ends || !self.ending.poll(cx) {
            return;
        }
        self.ends = true;
        self.metrics.watches_drained.inc();
        if let Some(events) = &mut self.events {
            events.source.end();
        }
    }
}

// === impl Written ===

impl Written {
    /// The event as a WebSocket message.
    fn message(&self, mut event: Slices) -> Slices {
        let kind = match self.form.encoding() {
            Encoding::Protobuf => {
                // The event starts with its length. In a message, the WebSocket header gives the length.
                event.advance(event.len().min(4));
                websocket::BINARY
            }
            _ => websocket::TEXT,
        };
        let mut message = Slices::from(Bytes::from(websocket::head(kind, event.len())));
        message.append(event);
        message
    }

    /// The event, and whether it is an error. An event whose object is damaged becomes one.
    fn event(&mut self, item: &WatcherEvent, source: &WatchSource) -> (Slices, bool) {
        let shape = self.shape.as_of_now();
        self.shape = self.shape.after_first();
        match item {
            WatcherEvent::Event { kind, object, rv } => match event_frame(&self.form, *kind, object, *rv, shape) {
                Ok(event) => (event, false),
                Err(damaged) => (self.form.error_frame(&errors::damaged(damaged)).into(), true),
            },
            WatcherEvent::Bookmark { rv, initial_end } => {
                let template = source.bookmark_template();
                (self.form.bookmark_frame(template.as_ref(), *rv, *initial_end, shape).into(), false)
            }
            WatcherEvent::Error(status) => (self.form.error_frame(status).into(), true),
        }
    }
}

impl Body for WatchBody {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        let this = &mut *self;
        if std::mem::take(&mut this.pauses) {
            return Poll::Ready(Some(Ok(Frame::data(Slices::new()))));
        }
        this.poll_drain(cx);
        let frame = ready!(this.poll_events(cx));
        let watcher = this.events.as_ref().and_then(|events| events.source.watcher());
        let is_paused = watcher.is_some_and(CacheWatcher::is_paused);
        if frame.is_empty() && !is_paused {
            return if this.events.is_none() { Poll::Ready(None) } else { Poll::Pending };
        }
        this.pauses = is_paused && !frame.is_empty();
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}

// === impl Leased ===

impl Leased {
    /// Must not be polled again after an error or the end. The lease is checked before every event, so that events after the
    /// loss of the authorization are not sent.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Poll::Ready(gone) = self.right.lease.poll_gone(cx) {
            // Without a Status, nobody can say whether the right is still there. The client has not lost its place: it goes on
            // after its last event, over another connection and so perhaps at another server, which may know.
            if gone.is_none()
                && let Some(connection) = self.right.connection.upgrade()
            {
                connection.close();
            }
            // Unless it would miss others of the same revision there.
            let split_at = self.next.as_ref().map_or_else(|| self.split_at(), |next| next.1);
            let expired = || split_at.map(|rv| Box::new(errors::expired_watch(rv.get(), rv.get())));
            return Poll::Ready(gone.or_else(expired).map(|status| (WatcherEvent::Error(status), None)));
        }
        if let Some(next) = self.next.take() {
            return Poll::Ready(Some(*next));
        }
        let split_at = self.split_at();
        self.source.poll_next(cx).map(|next| next.map(|event| (event, split_at)))
    }

    fn split_at(&self) -> Option<ResourceVersion> {
        self.source.watcher().and_then(CacheWatcher::split_at)
    }
}

#[cfg(test)]
#[path = "watch_body_tests.rs"]
mod tests;
