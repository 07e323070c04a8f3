//! Accounts for the memory of the requests of a call from their first byte: the received bytes, the decompressed
//! message and the decoded message. The account ends when the call has taken over what it keeps.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::access::Caller;
use super::cost;
use super::status::Error;
use crate::grpc::pb::{Check, checked};
use crate::lifecycle::drain::DrainSignal;
use crate::memory::{Lack, Ledger, Reservation};

tokio::task_local! {
    /// The account of the call that is being served.
    static INTAKE: Intake;
}

/// The memory of the requests of one call. Cloning shares the account.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Intake {
    /// The path of its method.
    method: Arc<str>,
    held: Arc<Mutex<IntakeMemory>>,
}

#[derive(Debug)]
struct IntakeMemory {
    reservation: Reservation,
    /// Counts it in the share of its client.
    caller: Option<Caller>,
    /// The minimum reservation, even when less memory is used.
    place: usize,
    /// The largest message so far, as it was received and unpacked. The library keeps its buffers for as long as the call
    /// reads.
    received: usize,
    unpacked: usize,
    /// The most that a message may become that is being unpacked.
    unpacking: usize,
    /// The message that was decoded last.
    decoded: usize,
}

/// A request body that passes on one message at a time.
struct Counted {
    body: Body,
    intake: Intake,
    /// The size limit of a message in bytes, compressed or not.
    most: usize,
    /// Received bytes that were not yet passed on.
    frame: Bytes,
    /// The header of a message: whether it is compressed, and its length in four bytes.
    head: Vec<u8>,
    /// The current message: the received bytes including its header, the missing bytes, and whether it is compressed.
    had: usize,
    left: usize,
    is_packed: bool,
    /// The timer that runs while a message, or the rest of one, must come. Nothing but the whole of the first message stops
    /// its timer.
    late: Option<Pin<Box<Sleep>>>,
    /// Set while the call waits for the request that it begins with, or for the end of its only request.
    opening: Option<Opening>,
    silent: Counter,
}

/// What ends the wait for the first request of a call: a drain, or the age of the connection. Later the call itself
/// handles both.
#[derive(Debug)]
pub(in crate::grpc) struct Opening {
    pub(in crate::grpc) drain: DrainSignal,
    pub(in crate::grpc) retired: DrainSignal,
    /// Counts the calls whose request did not come.
    pub(in crate::grpc) silent: Counter,
}

type Next = Poll<Option<Result<Frame<Bytes>, Status>>>;

/// The reservation of every call in bytes. It ensures that an open stream can continue with small messages.
const PLACE: usize = 4 << 10;
/// The same for streams of compressed messages, which may decompress to this size.
const PACKED_PLACE: usize = 16 << 10;
const HEAD: usize = 5;
/// The timeout for the whole first message of a call, and for the next part of any other message. A stream may be idle
/// between two messages for any time.
pub(in crate::grpc) const PATIENCE: Duration = Duration::from_secs(60);
/// A large first message has more time: a second for so many bytes.
const SLOWEST: usize = 16 << 10;
/// The bytes that gzip adds to a message, and its maximum compression ratio.
const GZIP: usize = 18;
const GZIP_MOST: usize = 1032;

/// The methods whose calls go on after their first request.
const SYNC: &str = "/informerd.v1.Objects/Sync";
const WORK: &str = "/informerd.v1.Queue/Work";

/// The maximum size in bytes of a request of this method.
pub(super) fn most(method: &str) -> usize {
    match method {
        // The request may contain the revisions that the client already has. `Sync` adds such watches.
        "/informerd.v1.Objects/Watch" | SYNC => 4 << 20,
        // Selections of 4096 names of 253 bytes, and the same amount again.
        "/informerd.v1.Objects/List" | WORK => 2 << 20,
        // A mask of 256 paths.
        "/informerd.v1.Objects/Get" => 256 << 10,
        _ => SMALL_REQUEST,
    }
}

/// The limit for requests that contain only names of resources and services.
pub(in crate::grpc) const SMALL_REQUEST: usize = 4 << 10;

// === impl Intake ===

impl Intake {
    /// # Errors
    /// RESOURCE_EXHAUSTED: the memory for clients is used up, or the client has its share of it.
    pub(in crate::grpc) fn new(
        ledger: &Ledger,
        caller: Option<Caller>,
        method: &str,
        is_packed: bool,
    ) -> Result<Self, Error> {
        let place = if is_packed { PACKED_PLACE } else { PLACE };
        let held = IntakeMemory::new(ledger, caller, place, 0)?;
        Ok(Self { method: method.into(), held: Arc::new(Mutex::new(held)) })
    }

    /// The account of the call that the current task serves.
    pub(in crate::grpc) fn current() -> Option<Self> {
        INTAKE.try_with(Clone::clone).ok()
    }

    /// Runs `answer` with this account as the current one, also for the messages that are decoded for it.
    pub(in crate::grpc) async fn during<F: Future>(self, answer: F) -> F::Output {
        let account = self.clone();
        let check: Check = Arc::new(move |message: &[u8]| account.decode(message).map_err(Status::from));
        checked(check, INTAKE.scope(self, answer)).await
    }

    /// Wraps a body so that its bytes are counted. Its first message must come.
    pub(in crate::grpc) fn count(&self, body: Body, opening: Opening) -> Body {
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
            silent: opening.silent.clone(),
            opening: Some(opening),
        })
    }

    /// From now on the decoded message is accounted for elsewhere.
    pub(in crate::grpc) fn hand_over(&self) {
        // This releases memory, so it cannot fail.
        self.change(|held| held.decoded = 0).ok();
    }

    /// Accounts for a message before it is decoded. The message before it is already dropped.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED.
    pub(in crate::grpc) fn decode(&self, message: &[u8]) -> Result<(), Error> {
        let decoded = cost::of_request(&self.method, message);
        self.change(|held| {
            held.decoded = decoded;
            if std::mem::take(&mut held.unpacking) > 0 {
                // What it has become is known now.
                held.unpacked = held.unpacked.max(message.len());
            }
        })
    }

    /// Gives the message that was decoded last an account of its own, because it stays while the call goes on.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the message must not stay.
    pub(in crate::grpc) fn of_message(&self, ledger: &Ledger) -> Result<Self, Error> {
        let (mut decoded, mut caller) = (0, None);
        let take = |held: &mut IntakeMemory| {
            decoded = std::mem::take(&mut held.decoded);
            caller = held.caller.clone();
        };
        // This releases memory, so it cannot fail.
        self.change(take).ok();
        let held = IntakeMemory::new(ledger, caller, 0, decoded)?;
        Ok(Self { method: Arc::clone(&self.method), held: Arc::new(Mutex::new(held)) })
    }

    fn receive(&self, received: usize, unpacking: usize) -> Result<(), Error> {
        self.change(|held| (held.received, held.unpacking) = (held.received.max(received), unpacking))
    }

    fn change(&self, change: impl FnOnce(&mut IntakeMemory)) -> Result<(), Error> {
        let mut held = self.held.lock();
        change(&mut held);
        held.settle()
    }
}

// === impl IntakeMemory ===

impl IntakeMemory {
    fn new(ledger: &Ledger, caller: Option<Caller>, place: usize, decoded: usize) -> Result<Self, Error> {
        let reservation = ledger.nothing();
        if let Some(caller) = &caller {
            caller.charge(&reservation)?;
        }
        let mut held = Self { reservation, caller, place, received: 0, unpacked: 0, unpacking: 0, decoded };
        held.settle()?;
        Ok(held)
    }

    fn settle(&mut self) -> Result<(), Error> {
        let has = self.reservation.bytes();
        let needs = (self.received + self.unpacked.max(self.unpacking) + self.decoded).max(self.place);
        if needs > has
            && let Err(short) = self.reservation.grow(needs - has)
        {
            let own = self.caller.as_ref().filter(|_| short.of != Lack::All).map(Caller::overflow);
            return Err(own.unwrap_or_else(|| Error::no_memory("there is no memory for the request")));
        }
        self.reservation.shrink(has.saturating_sub(needs));
        Ok(())
    }
}

// === impl Counted ===

impl Counted {
    /// Returns the next part of the received bytes. A part belongs to one message or to one header.
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
            if self.opening.is_some() && length > SLOWEST {
                // A large message over a slow link takes its time.
                let seconds = u64::try_from(length / SLOWEST).unwrap_or(u64::MAX);
                self.late = Some(Box::pin(sleep(PATIENCE + Duration::from_secs(seconds))));
            }
        }
        let more = self.left.min(self.frame.len() - end);
        (self.had, self.left) = (self.had + more, self.left - more);
        let is_whole = self.left == 0;
        let unpacking = if self.is_packed && is_whole {
            (self.had - HEAD).saturating_sub(GZIP).saturating_mul(GZIP_MOST).min(self.most)
        } else {
            0
        };
        self.intake.receive(self.had, unpacking)?;
        Ok(self.frame.split_to(end + more))
    }

    /// Nothing was received. Where something must come, that is an error after [`PATIENCE`].
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Next {
        if let Some(Opening { drain, retired, .. }) = &mut self.opening {
            // A `Sync` stream handles both ends itself from the start.
            let ends_itself = &*self.intake.method == SYNC;
            if !ends_itself && Pin::new(drain).poll(cx).is_ready() {
                return self.fail(Error::draining());
            }
            if !ends_itself && Pin::new(retired).poll(cx).is_ready() {
                return self.fail(Error::retired());
            }
        } else if self.left == 0 && self.head.is_empty() {
            return Poll::Pending;
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        ready!(late.as_mut().poll(cx));
        self.silent.inc();
        self.fail(Error::silent(PATIENCE))
    }

    fn fail(&mut self, error: Error) -> Next {
        // The rest of the body is not needed.
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
            match next {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        // The first message must be there in time as a whole.
                        if this.opening.is_none() && !data.is_empty() {
                            this.late = None;
                        }
                        this.frame = data;
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        match this.part() {
            Ok(part) => {
                let is_whole = this.left == 0 && this.head.is_empty();
                if is_whole && [SYNC, WORK].contains(&&*this.intake.method) && this.opening.take().is_some() {
                    this.late = None;
                }
                Poll::Ready(Some(Ok(Frame::data(part))))
            }
            Err(error) => this.fail(error),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frame.is_empty() && self.body.is_end_stream()
    }
}

impl Drop for Counted {
    /// The reader of a body drops its buffers together with the body.
    fn drop(&mut self) {
        let mut held = self.intake.held.lock();
        (held.received, held.unpacked, held.unpacking) = (0, 0, 0);
        // This releases memory, so it cannot fail.
        held.settle().ok();
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
