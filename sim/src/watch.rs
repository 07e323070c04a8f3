//! WATCH: initial events, live events, bookmarks, and all faults of a stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Response, StatusCode};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use super::body::{self, Body};
use super::counts::{OpenWatch, Verb};
use super::encode::{self, Shape};
use super::fault::{Cut, Effect, Faults, Interrupt};
use super::handler::Request;
use super::net::Connection;
use super::options::{self, Options};
use super::registry::Kind;
use super::select::Selection;
use super::store::{Change, PastError, View};
use super::stored::Stored;
use super::table;
use super::write::{mix, not_found};
use crate::types::{EventType, Status};

/// Frames are sent together until they reach about this size in bytes.
const PIECE: usize = 64 * 1024;
/// The last bookmark is sent this long before the deadline.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// A stream with initial events gets another bookmark this long after them.
const FIRST_BOOKMARK: Duration = Duration::from_secs(1);

struct Watcher {
    kind: Arc<Kind>,
    selection: Selection,
    shape: Shape,
    view: View,
    faults: Faults,
    connection: Arc<Connection>,
    /// Synthetic ADDED events that are not sent yet.
    initial: std::vec::IntoIter<Arc<Stored>>,
    /// The revision after which live events begin. The bookmark at the end of the initial events has this revision, and all others
    /// are newer.
    start: u64,
    end_bookmark: bool,
    /// The next changes are those that are there when the watch begins. A bookmark must be newer than them.
    replays: bool,
    cursor: u64,
    bookmarks: bool,
    next_bookmark: Option<Instant>,
    bookmark_every: Duration,
    deadline: Instant,
    tick: watch::Receiver<u64>,
    interrupts: broadcast::Receiver<Interrupt>,
    faults_changed: watch::Receiver<u64>,
    out: Vec<u8>,
    /// The last event frame, for a replay.
    previous: Vec<u8>,
    ending: Option<Ending>,
    stalled: bool,
    first_table: bool,
    open: OpenWatch,
}

/// What follows the frames in `out`.
#[derive(Clone, Copy)]
enum Ending {
    Clean,
    Broken(Cut),
}

pub(super) async fn watch(
    request: &Request<'_>,
    selection: Selection,
    mut options: Options,
) -> Result<Response<Body>, Box<Status>> {
    let (kind, view) = (request.kind, request.view());
    let gone = |_: PastError| not_found(kind, "");
    options.set_defaults();
    let wants_initial = options.initial_events == Some(true);
    if wants_initial
        && request.faults().take(Verb::Watch, Some(kind), |effect| *effect == Effect::RefuseWatchList).is_some()
    {
        return Err(options::watch_list_refused());
    }
    let rv = options.revision().map_err(|text| Box::new(Status::failure(500, "", text)))?;
    let deadline = Instant::now() + duration(&options, request.serial);
    let subscribed = view.subscribe(&kind.id).ok_or_else(|| not_found(kind, ""))?;
    let mut error = None;
    if wants_initial || options.rv.is_empty() {
        error = view.wait_for((!options.rv.is_empty()).then_some(rv)).await.err();
    }
    let (objects, now) = view.snapshot(&kind.id, options.rv.is_empty() || rv > 0 && wants_initial).map_err(gone)?;
    let start = if wants_initial || rv == 0 { now } else { rv };
    if !wants_initial && let Err(oldest) = view.can_watch_from(&kind.id, start) {
        let message = format!("too old resource version: {start} ({oldest})");
        error = Some(Box::new(Status::failure(410, "Expired", message)));
    }
    let initial = objects.values().filter(|stored| wants_initial && selection.matches(stored));
    let initial: Vec<_> = initial.cloned().collect();
    let mut watcher = Watcher {
        kind: kind.clone(),
        selection,
        shape: request.shape,
        view: view.clone(),
        faults: request.faults().clone(),
        connection: request.connection.clone(),
        initial: initial.into_iter(),
        start,
        end_bookmark: wants_initial && options.bookmarks,
        replays: !wants_initial,
        cursor: start,
        bookmarks: options.bookmarks && !kind.uncached,
        next_bookmark: None,
        bookmark_every: request.bookmark_every(),
        deadline,
        tick: subscribed,
        interrupts: request.faults().interrupts(),
        faults_changed: request.faults().changed(),
        out: Vec::new(),
        previous: Vec::new(),
        ending: None,
        stalled: false,
        first_table: true,
        open: request.open_watch(),
    };
    watcher.next_bookmark =
        watcher.schedule(if watcher.end_bookmark { FIRST_BOOKMARK } else { watcher.bookmark_every });
    if let Some(error) = error {
        watcher.error(&error);
    }
    let body = body::streamed(stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((piece, watcher))
    }));
    Ok(body::typed(StatusCode::OK, request.shape.media_type(true), body))
}

/// The duration of the watch. Without a timeout it is 30 to 60 minutes.
fn duration(options: &Options, serial: u64) -> Duration {
    match options.timeout {
        Some(seconds) if seconds != 0 => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        _ => Duration::from_secs(1800 + mix(serial) % 1800),
    }
}

// === impl Watcher ===

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.out.is_empty() && !self.stalled {
                return Some(std::mem::take(&mut self.out).into());
            }
            match self.ending {
                Some(Ending::Clean) => return None,
                Some(Ending::Broken(how)) => return body::finish(how, &self.connection).await,
                None if self.stalled => self.wait(None).await,
                None => self.fill().await,
            }
        }
    }

    /// Adds frames to `out` or sets `ending`, or waits until there may be something to send.
    async fn fill(&mut self) {
        while let Some(stored) = self.initial.next() {
            self.event("ADDED", &stored);
            if self.out.len() >= PIECE || self.is_over() {
                return;
            }
        }
        if std::mem::take(&mut self.end_bookmark) {
            if self.faults.take(Verb::Watch, Some(&self.kind), |effect| *effect == Effect::NoInitialEnd).is_none() {
                self.bookmark(self.start, true);
            }
            return;
        }
        self.tick.mark_unchanged();
        let Some(later) = self.view.later(&self.kind.id, self.cursor, self.faults.lag(&self.kind)) else {
            self.ending = Some(Ending::Clean);
            return;
        };
        if later.lost {
            self.ending = Some(Ending::Clean);
            return;
        }
        if std::mem::take(&mut self.replays) {
            self.start = later.changes.last().map_or(self.start, |change| change.rv);
        }
        for change in &later.changes {
            self.change(change);
            self.cursor = change.rv;
            if self.out.len() >= PIECE || self.is_over() {
                return;
            }
        }
        self.cursor = self.cursor.max(later.progress);
        if later.last && later.next.is_none() {
            self.ending = Some(Ending::Clean);
            return;
        }
        let now = Instant::now();
        if self.next_bookmark.is_some_and(|at| at <= now) {
            // Not of `progress`, which goes back when the lag grows.
            if self.cursor > self.start
                && self.faults.take(Verb::Watch, Some(&self.kind), |effect| *effect == Effect::NoBookmark).is_none()
            {
                self.bookmark(self.cursor, false);
            }
            self.next_bookmark = self.schedule(self.bookmark_every);
        }
        if self.out.is_empty() {
            self.wait(later.next).await;
        }
    }

    /// Where the watch stalls, it waits for the deadline or an interruption alone.
    async fn wait(&mut self, next: Option<Instant>) {
        let wakes = [next, self.next_bookmark].into_iter().flatten().filter(|_| !self.stalled);
        let wake = wakes.fold(self.deadline, Instant::min);
        tokio::select! {
            told = self.tick.changed(), if !self.stalled => {
                // The resource was defined again, so the event log of this stream is closed.
                if told.is_err() {
                    self.ending = Some(Ending::Clean);
                }
            }
            () = tokio::time::sleep_until(wake) => {
                if Instant::now() >= self.deadline {
                    self.ending = Some(Ending::Clean);
                }
            }
            interrupt = self.interrupts.recv() => if let Ok(interrupt) = interrupt {
                self.interrupt(&interrupt);
            },
            _ = self.faults_changed.changed(), if !self.stalled => {}
        }
    }

    fn interrupt(&mut self, interrupt: &Interrupt) {
        if interrupt.resource.as_deref().is_some_and(|name| !self.kind.is(name)) {
            return;
        }
        if interrupt.expire {
            self.expire();
        }
        self.ending = Some(Ending::Clean);
    }

    /// Sends a change in the form that this watcher's selection sees.
    fn change(&mut self, change: &Change) {
        let now = change.kind != EventType::Deleted && self.selection.matches(&change.object);
        let before = change.prev.as_ref().filter(|prev| self.selection.matches(prev));
        if now || before.is_some() {
            self.open.sent_event();
        }
        match (now, before) {
            (true, None) => self.event("ADDED", &change.object),
            (true, Some(_)) => self.event("MODIFIED", &change.object),
            (false, Some(prev)) => self.event("DELETED", &prev.with_rv(change.rv)),
            (false, None) => {}
        }
    }

    fn event(&mut self, event: &str, stored: &Stored) {
        let object = match self.shape {
            Shape::Table { objects } => self.table(stored.rv, &table::row(&self.kind, stored, objects)).into(),
            shape => encode::shaped(shape, stored),
        };
        let frame = encode::frame(self.shape, event, &object);
        let strikes = |effect: &Effect| {
            matches!(
                effect,
                Effect::Cut(_)
                    | Effect::Expire
                    | Effect::ErrorEvent(_)
                    | Effect::Garbage
                    | Effect::Duplicate
                    | Effect::Replay
                    | Effect::Stall
            )
        };
        match self.faults.take(Verb::Watch, Some(&self.kind), strikes) {
            Some(Effect::Cut(how)) => {
                self.out.extend_from_slice(&frame[..frame.len() / 2]);
                self.ending = Some(Ending::Broken(how));
                return;
            }
            Some(Effect::Expire) => {
                self.expire();
                return;
            }
            Some(Effect::ErrorEvent(code)) => {
                self.error(&super::handler::fault_status(code, None));
                return;
            }
            Some(Effect::Garbage) => {
                self.out.extend_from_slice(b"{\"type\":\"MODIFIED\",\"object\":{\"kind\"\x00]]garbage\n");
            }
            Some(Effect::Duplicate) => {
                self.out.extend_from_slice(&frame);
                self.out.extend_from_slice(&frame);
            }
            Some(Effect::Replay) => {
                self.out.extend_from_slice(&frame);
                self.out.extend_from_slice(&self.previous);
            }
            Some(Effect::Stall) => self.stalled = true,
            _ => self.out.extend_from_slice(&frame),
        }
        self.previous = frame;
    }

    fn expire(&mut self) {
        let message = format!("too old resource version: {} ({})", self.cursor, self.view.revision());
        self.error(&Status::failure(410, "Expired", message));
    }

    fn error(&mut self, status: &Status) {
        self.out.extend_from_slice(&encode::error_frame(self.shape, status));
        self.ending = Some(Ending::Clean);
    }

    fn bookmark(&mut self, rv: u64, initial_events_end: bool) {
        let object = match self.shape {
            Shape::Table { .. } => {
                let object = encode::bookmark_object(&self.kind, Shape::Partial, rv, initial_events_end);
                let row = [&br#"{"cells":[],"object":"#[..], &object, b"}"].concat();
                self.table(rv, &row)
            }
            shape => encode::bookmark_object(&self.kind, shape, rv, initial_events_end),
        };
        self.out.extend_from_slice(&encode::frame(self.shape, "BOOKMARK", &object));
    }

    fn table(&mut self, rv: u64, row: &[u8]) -> Vec<u8> {
        table::table(&self.kind, rv, row, std::mem::take(&mut self.first_table))
    }

    fn is_over(&self) -> bool {
        self.stalled || self.ending.is_some()
    }

    /// The time of the next bookmark: after `after`, or shortly before the deadline, whichever is earlier.
    fn schedule(&self, after: Duration) -> Option<Instant> {
        let (now, last) = (Instant::now(), self.deadline.checked_sub(LAST_BOOKMARK)?);
        (self.bookmarks && last > now).then(|| last.min(now + after))
    }
}
