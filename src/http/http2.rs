//! Connections over HTTP/2. The library gives each stream a future. It runs as a task of its own until it has begun to
//! answer a watch. From then on, the task of the connection runs it.
//!
//! An event wakes all watches of a connection at once. As tasks they would run on several threads, which all wait for
//! the one lock of the connection, and each of them would have to be scheduled. The task of the connection is woken
//! once for all of them, after the last one.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::stream::{FuturesUnordered, Stream as _};
use hyper::body::Incoming;
use hyper::rt::{Executor, Read, Write};
use hyper::server::conn::http2::{Builder, Connection};
use hyper::service::HttpService;
use parking_lot::Mutex;
use tokio::task::coop::{Unconstrained, unconstrained};

use super::body::{Body, BoxError};
use super::protocol::Serving;
use super::write_coalescer::in_turn;
use crate::lifecycle::spawn;
use crate::lifecycle::wakes::JointWaker;

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One connection.
pub(super) struct Http2<I, S: HttpService<Incoming>> {
    // Dropped first: a stream tells the connection of its end.
    watches: FuturesUnordered<Watch>,
    library: Connection<I, S, Streams>,
    streams: Streams,
    /// The waker of all watches.
    waker: Waker,
}

/// Runs the streams of one connection. Cloning shares it.
#[derive(Clone)]
pub(super) struct Streams(Arc<HandedOver>);

struct HandedOver {
    /// Watches that the connection has not taken over yet. `None` once the connection is gone: a watch holds its
    /// executor, so one that stayed here would keep itself alive.
    watches: Mutex<Option<Vec<BoxFuture>>>,
    connection: Arc<JointWaker>,
}

/// A stream before it is a watch.
struct Stream {
    /// `None` once the connection has it.
    future: Option<BoxFuture>,
    streams: Streams,
}

/// A stream that the connection runs.
struct Watch {
    /// The tokio budget of a task would stop most watches of a connection in the middle of an event.
    future: Unconstrained<BoxFuture>,
    gate: Arc<Gate>,
    /// Wakes through the gate.
    waker: Waker,
}

/// Keeps a stream from waking itself. The library does so for each piece of data, because it gives the stream room to
/// send, which the stream has used by then.
#[derive(Default)]
struct Gate {
    /// The same for as long as the connection runs the stream.
    task: OnceLock<Waker>,
}

/// The most watches that run before the connection writes what they have sent. It bounds the time in which other tasks
/// of the thread wait.
const TURN: u32 = 256;

thread_local! {
    /// The stream that runs now has begun to answer a watch.
    static IS_WATCH: Cell<bool> = const { Cell::new(false) };
    /// The watches that may still run in this turn.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// The address of the gate of the watch that runs now, outside its body.
    static CLOSED: Cell<usize> = const { Cell::new(0) };
}

/// Opens the gate that is closed on this thread, also after a panic.
struct Opens;

/// Polls the body of a stream. A body may wake itself.
pub(super) fn in_body<T>(poll: impl FnOnce() -> T) -> T {
    let closed = CLOSED.replace(0);
    let polled = poll();
    CLOSED.set(closed);
    polled
}

/// Hands the stream that runs now over to its connection.
pub(super) fn hand_over() {
    IS_WATCH.set(true);
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
        Self { watches: FuturesUnordered::new(), library: builder.serve_connection(io, service), streams, waker }
    }

    /// Returns whether any watch has run.
    fn poll_watches(&mut self, cx: &mut Context<'_>) -> bool {
        self.streams.0.connection.register(cx.waker());
        LEFT.set(TURN);
        // Whatever is left wakes the task.
        let mut cx = Context::from_waker(&self.waker);
        // A set of futures that wake themselves returns early, and a stream does so whenever the library gives it room to
        // send. All that is ready runs before anything is written.
        while LEFT.get() > 0 && self.streams.0.connection.take_woken() {
            // A stream is handed over before its connection is woken, so this finds the stream of each wake that was taken.
            // A look before that would leave a stream that is handed over in between without a wake.
            let handed_over = self.streams.0.watches.lock().as_mut().map(std::mem::take);
            self.watches.extend(handed_over.into_iter().flatten().map(Watch::new));
            while let Poll::Ready(Some(())) = Pin::new(&mut self.watches).poll_next(&mut cx) {}
        }
        LEFT.get() < TURN
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

    /// Drops the watches that were handed over, and those that come later.
    fn close(&self) {
        let left = self.0.watches.lock().take();
        drop(left);
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(HandedOver { watches: Mutex::new(Some(Vec::new())), connection: Arc::default() }))
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        spawn("stream", Stream { future: Some(Box::pin(future)), streams: self.clone() });
    }
}

// === impl Stream ===

impl Future for Stream {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        IS_WATCH.set(false);
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !IS_WATCH.get() {
            return Poll::Pending;
        }
        let this = &mut *self;
        let HandedOver { watches, connection } = &*this.streams.0;
        if let Some(watches) = &mut *watches.lock() {
            watches.extend(this.future.take());
        }
        connection.wake_by_ref();
        // Without its connection, the stream is dropped with its task.
        Poll::Ready(())
    }
}

// === impl Watch ===

impl Watch {
    fn new(future: BoxFuture) -> Self {
        let gate = Arc::<Gate>::default();
        Self { future: unconstrained(future), waker: Waker::from(Arc::clone(&gate)), gate }
    }
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { future, gate, waker } = &mut *self;
        let Some(left) = LEFT.get().checked_sub(1) else {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        LEFT.set(left);
        gate.task.get_or_init(|| cx.waker().clone());
        CLOSED.set(gate.address());
        let _opens = Opens;
        Pin::new(future).poll(&mut Context::from_waker(waker))
    }
}

impl Drop for Opens {
    fn drop(&mut self) {
        CLOSED.set(0);
    }
}

// === impl Gate ===

impl Gate {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if CLOSED.get() != self.address() {
            self.task.get().into_iter().for_each(Waker::wake_by_ref);
        }
    }
}

#[cfg(test)]
#[path = "http2_tests.rs"]
mod tests;
