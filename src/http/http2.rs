//! The multiplexer of HTTP/2: one connection carries many streams. The library gives each stream a future, which runs
//! as a task of its own. The task of the connection runs the watches, which write their own frames, see
//! [`DirectWatch`]. It also takes over their streams, which have nothing to do before the end: as a task, each would
//! need more memory.
//!
//! An event wakes all watches of a connection at once. As tasks they would run on several threads, which all wait for
//! the one lock of the connection, and each of them would have to be scheduled. The task of the connection is woken
//! once for all of them, after the last one.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake as _, Waker};

use futures_util::stream::{FuturesUnordered, Stream as _};
use http::Response;
use hyper::body::Incoming;
use hyper::rt::{Executor, Read, Write};
use hyper::server::conn::http2::{Builder, Connection};
use hyper::service::HttpService;
use parking_lot::Mutex;
use tokio::task::coop::{Unconstrained, unconstrained};

use super::body::{Body, BoxError};
use super::clients::IsWatch;
use super::direct_watch::DirectWatch;
use super::http2_socket::in_turn;
use super::serving::Serving;
use super::turn;
use super::until_taken::UntilTaken;
use crate::lifecycle::rounds::{self, Rounds};
use crate::lifecycle::wakes::JointWaker;
use crate::lifecycle::{has_ended_turn, spawn};
use crate::memory::Cut;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One connection, and the multiplexer of its watches.
pub(super) struct Http2<I, S: HttpService<Incoming>> {
    // Dropped first: a stream tells the connection of its end.
    watches: FuturesUnordered<Http2Watch>,
    /// The streams of the watches.
    ends: FuturesUnordered<BoxFuture>,
    library: Connection<I, S, Streams>,
    streams: Streams,
    rounds: Rounds,
    /// The waker of all watches.
    waker: Waker,
}

/// Runs the streams of one connection. Cloning shares it.
#[derive(Clone)]
pub(super) struct Streams(Arc<SharedStreams>);

struct SharedStreams {
    /// What the connection does not run yet. `None` once the connection is gone: a watch keeps its socket open, and a
    /// stream holds its executor, so one that stayed here would keep itself alive.
    begun: Mutex<Option<Begun>>,
    connection: Arc<JointWaker>,
}

#[derive(Default)]
struct Begun {
    watches: Vec<DirectWatch>,
    ends: Vec<BoxFuture>,
}

/// A stream, until it is that of a watch.
struct Stream {
    /// `None` once the connection has it.
    future: Option<BoxFuture>,
    streams: Streams,
}

/// A stream that is dropped once its answer is given up: the library then resets it, and drops what it holds of it.
struct Cuttable {
    future: BoxFuture,
    cut: Cut,
}

/// The tokio budget of a task would stop most watches of a connection in the middle of an event.
struct Http2Watch(Unconstrained<DirectWatch>);

/// The most watches that run before the connection writes what they have sent. It bounds the time in which other tasks
/// of the thread wait, together with [`turn::BYTES`].
const TURN: u32 = 256;

thread_local! {
    /// The watches that may still run in this turn.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// The stream that runs now has begun a watch.
    static IS_WATCH: Cell<bool> = const { Cell::new(false) };
    /// The answer of the stream that runs now may be given up.
    static CUT: RefCell<Option<Cut>> = const { RefCell::new(None) };
    /// The next stream has its end already.
    static ENDS_AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// The stream of the request that has come now is reset when it is first polled. It is then no task: with many connections,
/// all of them would make their streams before the first of these tasks runs.
pub(super) fn ends_at_once() {
    ENDS_AT_ONCE.set(true);
}

/// The answer of the stream that is polled now. If it is given up, the stream ends.
pub(super) fn cuttable(mut response: Response<Body>) -> Response<Body> {
    let cut = response.extensions_mut().remove::<Cut>();
    CUT.set(cut.clone());
    // The connection has the body of a watch, and drops it with its stream.
    match cut.filter(|_| response.extensions().get::<IsWatch>().is_none()) {
        None => response,
        Some(cut) => response.map(|body| Body::new(UntilTaken::new(body, cut))),
    }
}

// === impl Http2 ===

impl<I, S> Http2<I, S>
where
    I: Read + Write + Unpin + 'static,
    S: HttpService<Incoming, ResBody = Body>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    /// `streams` must be those of the builder, and of no other connection.
    pub(super) fn new(builder: &Builder<Streams>, streams: Streams, io: I, service: S) -> Self {
        let waker = streams.waker();
        let (watches, ends) = (FuturesUnordered::new(), FuturesUnordered::new());
        let (library, rounds) = (builder.serve_connection(io, service), Rounds::default());
        Self { watches, ends, library, streams, rounds, waker }
    }

    /// Returns whether any watch has run.
    fn poll_watches(&mut self, cx: &mut Context<'_>) -> bool {
        self.streams.0.connection.register(cx.waker());
        LEFT.set(TURN);
        let mut rounds = std::mem::take(&mut self.rounds);
        rounds.turn(self.watches.len(), || turn::bounded(|| self.poll_turn()));
        self.rounds = rounds;
        LEFT.get() < TURN
    }

    fn poll_turn(&mut self) {
        // Whatever is left wakes the task.
        let mut cx = Context::from_waker(&self.waker);
        // All that is ready runs before anything is written, also what becomes ready meanwhile.
        while LEFT.get() > 0 {
            if !self.streams.0.connection.take_woken() {
                if !rounds::begin() {
                    break;
                }
                continue;
            }
            // A watch is added before its connection is woken, so this finds the watch of each wake that was taken. A look
            // before that would leave a watch that is added in between without a wake.
            let begun = self.streams.0.begun.lock().as_mut().map(std::mem::take).unwrap_or_default();
            self.watches.extend(begun.watches.into_iter().map(|watch| Http2Watch(unconstrained(watch))));
            self.ends.extend(begun.ends);
            while let Poll::Ready(Some(())) = Pin::new(&mut self.watches).poll_next(&mut cx) {}
            while let Poll::Ready(Some(())) = Pin::new(&mut self.ends).poll_next(&mut cx) {}
        }
    }
}

impl<I, S> Future for Http2<I, S>
where
    I: Read + Write + Unpin + 'static,
    S: HttpService<Incoming, ResBody = Body>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Output = Result<(), hyper::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.poll_watches(cx) {
            // It takes the data of the watches, and writes it when it is polled again.
            let (polled, waits) = in_turn(|| Pin::new(&mut self.library).poll(cx));
            if polled.is_ready() || !waits {
                return polled;
            }
        }
        Pin::new(&mut self.library).poll(cx)
    }
}

impl<I, S> Serving for Http2<I, S>
where
    I: Read + Write + Unpin + 'static,
    S: HttpService<Incoming, ResBody = Body>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Error = hyper::Error;

    fn graceful_shutdown(mut self: Pin<&mut Self>) {
        Pin::new(&mut self.library).graceful_shutdown();
    }
}

impl<I, S: HttpService<Incoming>> Drop for Http2<I, S> {
    fn drop(&mut self) {
        self.streams.close();
    }
}

// === impl Streams ===

impl Streams {
    /// Wakes the task of the connection.
    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0.connection))
    }

    /// The connection runs the watch from now on, and the stream that is polled now.
    pub(super) fn run(&self, watch: DirectWatch) {
        IS_WATCH.set(true);
        self.begin(|begun| begun.watches.push(watch));
    }

    fn begin(&self, begin: impl FnOnce(&mut Begun)) {
        if let Some(begun) = &mut *self.0.begun.lock() {
            begin(begun);
        }
        self.0.connection.wake_by_ref();
    }

    /// Drops what does not run yet, and what comes later.
    fn close(&self) {
        let left = self.0.begun.lock().take();
        drop(left);
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(SharedStreams { begun: Mutex::new(Some(Begun::default())), connection: Arc::default() }))
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut future: BoxFuture = Box::pin(future);
        if ENDS_AT_ONCE.take() && future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        spawn("stream", Stream { future: Some(future), streams: self.clone() });
    }
}

// === impl Stream ===

impl Future for Stream {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        // An earlier stream may have panicked.
        IS_WATCH.set(false);
        CUT.set(None);
        let mut is_over = future.as_mut().poll(cx).is_ready();
        if let Some(cut) = CUT.take() {
            is_over |= cut.poll_cut(cx).is_ready();
            let whole = std::mem::replace(future, Box::pin(std::future::ready(())));
            *future = Box::pin(Cuttable { future: whole, cut });
        }
        if is_over || !IS_WATCH.get() {
            return if is_over { Poll::Ready(()) } else { Poll::Pending };
        }
        // Without its connection, the stream is dropped.
        let future = self.future.take();
        self.streams.begin(|begun| begun.ends.extend(future));
        Poll::Ready(())
    }
}

// === impl Cuttable ===

impl Future for Cuttable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.cut.poll_cut(cx).is_ready() {
            return Poll::Ready(());
        }
        self.future.as_mut().poll(cx)
    }
}

// === impl Http2Watch ===

impl Future for Http2Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(left) = LEFT.get().checked_sub(1) else {
            rounds::refuse(cx);
            return Poll::Pending;
        };
        rounds::runs();
        LEFT.set(left);
        // Another future may have said so before.
        has_ended_turn();
        let polled = Pin::new(&mut self.0).poll(cx);
        if has_ended_turn() || turn::left() == 0 {
            LEFT.set(0);
        }
        polled
    }
}

#[cfg(test)]
#[path = "http2_tests.rs"]
mod tests;
