//! The requests of a call, accounted for from their first byte: what has come of a message, what it unpacks to, and what it is
//! decoded to, until the call has made of it what it keeps.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::cost;
use super::status::Error;
use crate::memory::{Ledger, Reservation, Short};

tokio::task_local! {
    /// The account of the call that is being answered. The decoder of its messages finds it here.
    static INTAKE: Intake;
}

/// What the requests of one call hold. Cloning shares it.
#[derive(Clone, Debug)]
pub(super) struct Intake {
    /// The path of its method.
    method: Arc<str>,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug)]
struct Held {
    reservation: Reservation,
    /// What is kept of it however little is held.
    place: usize,
    /// The largest message so far: the library keeps its buffers for as long as the call reads.
    received: usize,
    unpacked: usize,
    /// The message that was decoded last.
    decoded: usize,
}

/// A request's body that hands on one message at a time.
struct Counted {
    body: Body,
    intake: Intake,
    /// The largest message in bytes, packed or not.
    most: usize,
    /// What has come and was not handed on.
    frame: Bytes,
    /// The beginning of a message: whether it is packed, and its length in four bytes.
    head: Vec<u8>,
    /// The current message: bytes that have come, its head included, bytes that are still to come, and whether it is packed.
    had: usize,
    left: usize,
    is_packed: bool,
    /// Runs while the rest of a message is waited for.
    late: Option<Pin<Box<Sleep>>>,
}

type Next = Poll<Option<Result<Frame<Bytes>, Status>>>;

/// What every call has a place for, so that a stream that has begun can go on with small messages.
const PLACE: usize = 4 << 10;
/// The same for streams of packed messages, which may unpack to that.
const PACKED_PLACE: usize = 16 << 10;
const HEAD: usize = 5;
/// How long the next part of a message may take. A stream may be silent between two messages.
const PATIENCE: Duration = Duration::from_secs(60);
/// What gzip adds to a message, and how much smaller it can make it.
const GZIP: usize = 18;
const GZIP_MOST: usize = 1032;

/// The largest request of a method in bytes.
pub(super) fn most(method: &str) -> usize {
    match method {
        // With revisions of what the client holds; `Sync` adds such watches.
        "/informerd.v1.Objects/Watch" | "/informerd.v1.Objects/Sync" => 4 << 20,
        // Selections of 4096 names of 253 bytes, and as much again.
        "/informerd.v1.Objects/List" | "/informerd.v1.Queue/Work" => 2 << 20,
        // A mask of 256 paths.
        "/informerd.v1.Objects/Get" => 256 << 10,
        _ => SMALL_REQUEST,
    }
}

/// Names of resources and services.
pub(super) const SMALL_REQUEST: usize = 4 << 10;

// === impl Intake ===

impl Intake {
    /// # Errors
    /// RESOURCE_EXHAUSTED: clients hold as much already as they may.
    pub(super) fn new(ledger: &Ledger, method: &str, is_packed: bool) -> Result<Self, Error> {
        let place = if is_packed { PACKED_PLACE } else { PLACE };
        let reservation = ledger.lasting(place).map_err(|_| no_memory())?;
        let held = Held { reservation, place, received: 0, unpacked: 0, decoded: 0 };
        Ok(Self { method: method.into(), held: Arc::new(Mutex::new(held)) })
    }

    /// The account of the call that this task answers now.
    pub(super) fn current() -> Option<Self> {
        INTAKE.try_with(Clone::clone).ok()
    }

    /// Answers a call whose requests are accounted for.
    pub(super) async fn during<F: Future>(self, answer: F) -> F::Output {
        INTAKE.scope(self, answer).await
    }

    /// Counts what goes through this body.
    pub(super) fn count(&self, body: Body) -> Body {
        Body::new(Counted {
            body,
            intake: self.clone(),
            most: most(&self.method),
            frame: Bytes::new(),
            head: Vec::with_capacity(HEAD),
            had: 0,
            left: 0,
            is_packed: false,
            late: None,
        })
    }

    /// What was decoded is accounted for elsewhere from now on.
    pub(super) fn hand_over(&self) {
        // There is no less room than before.
        self.change(|held| held.decoded = 0).ok();
    }

    /// A whole message is about to be decoded; the one before it is gone.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub(super) fn decode(&self, message: &[u8]) -> Result<(), Error> {
        let decoded = cost::of_request(&self.method, message);
        self.change(|held| held.decoded = decoded)
    }

    fn receive(&self, received: usize, unpacked: usize) -> Result<(), Error> {
        self.change(|held| {
            (held.received, held.unpacked) = (held.received.max(received), held.unpacked.max(unpacked));
        })
    }

    fn change(&self, change: impl FnOnce(&mut Held)) -> Result<(), Error> {
        let mut held = self.held.lock();
        change(&mut held);
        held.settle().map_err(|_| no_memory())
    }
}

// === impl Held ===

impl Held {
    fn settle(&mut self) -> Result<(), Short> {
        let has = self.reservation.bytes();
        let needs = (self.received + self.unpacked + self.decoded).max(self.place);
        if needs > has {
            return self.reservation.grow(needs - has);
        }
        self.reservation.shrink(has - needs);
        Ok(())
    }
}

fn no_memory() -> Error {
    Error::no_memory("there is no memory for the request")
}

// === impl Counted ===

impl Counted {
    /// The next part of what has come: of one message, or of its head.
    fn part(&mut self) -> Result<Bytes, Error> {
        let mut end = 0;
        if self.left == 0 {
            end = (HEAD - self.head.len()).min(self.frame.len());
            self.head.extend_from_slice(&self.frame[..end]);
            let &[packed, a, b, c, d] = self.head.as_slice() else { return Ok(self.frame.split_to(end)) };
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if length > self.most {
                let message = format!("a request has {length} bytes, and at most {} are taken", self.most);
                return Err(Error::invalid(message));
            }
            self.head.clear();
            (self.had, self.left, self.is_packed) = (HEAD, length, packed != 0);
        }
        let more = self.left.min(self.frame.len() - end);
        (self.had, self.left) = (self.had + more, self.left - more);
        let is_whole = self.left == 0;
        let unpacked = if self.is_packed && is_whole {
            (self.had - HEAD).saturating_sub(GZIP).saturating_mul(GZIP_MOST).min(self.most)
        } else {
            0
        };
        self.intake.receive(self.had, unpacked)?;
        Ok(self.frame.split_to(end + more))
    }

    /// Nothing has come. In the midst of a message that is borne for a while only.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Next {
        if self.left == 0 && self.head.is_empty() {
            return Poll::Pending;
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        ready!(late.as_mut().poll(cx));
        self.fail(Error::invalid(format!("nothing of the rest of a message has come for {} s", PATIENCE.as_secs())))
    }

    fn fail(&mut self, error: Error) -> Next {
        // Nothing more of it is wanted.
        (self.body, self.frame, self.left) = (Body::empty(), Bytes::new(), 0);
        self.head.clear();
        Poll::Ready(Some(Err(error.into())))
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Next {
        let this = &mut *self;
        while this.frame.is_empty() {
            let Poll::Ready(next) = Pin::new(&mut this.body).poll_frame(cx) else { return this.poll_late(cx) };
            this.late = None;
            match next {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.frame = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        match this.part() {
            Ok(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
            Err(error) => this.fail(error),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frame.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for Counted {
    /// The reader of a body drops its buffers together with it.
    fn drop(&mut self) {
        let mut held = self.intake.held.lock();
        (held.received, held.unpacked) = (0, 0);
        // There is no less room than before.
        held.settle().ok();
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
