//! Request heads that are not complete yet: the memory that they take, and the time. No handler knows of them, so a client
//! could otherwise make the process hold as many of the largest heads as it opens connections.
//!
//! A usual head comes in one read, or in a few. A larger part of a head is reserved before the next part is read. All heads
//! that are open have a small share of the memory for answers, and those of one address have half of that.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use super::newcomer::HEAD_TIMEOUT;
use crate::http::record::HttpMetrics;
use crate::lifecycle::slots::group;
use crate::memory::{HURRY, Ledger, Level, Reservation};

/// The most bytes of one read.
pub(in crate::http) const READ: usize = 16 << 10;
/// The most bytes of one read while a head is open.
const PART: usize = 8 << 10;
/// What each connection may hold of a head without a reservation.
pub(in crate::http) const FREE: usize = 16 << 10;
/// All heads together may take this part of the memory for answers.
const SHARE: usize = 8;
/// Who has no room looks again after this time.
const AGAIN: Duration = Duration::from_millis(100);

/// The open heads of all connections.
#[derive(Debug)]
pub(in crate::http) struct OpenHeads {
    ledger: Ledger,
    /// The largest head that is accepted.
    largest: usize,
    taken: Mutex<TakenHeads>,
    metrics: Arc<HttpMetrics>,
}

#[derive(Debug, Default)]
struct TakenHeads {
    all: Part,
    /// There is an entry for each that has reserved something.
    by_holder: HashMap<Holder, Part>,
}

#[derive(Debug, Default)]
struct Part {
    bytes: usize,
    /// When more was last refused.
    refused: Option<Instant>,
}

/// Who has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Address(IpAddr),
    /// All Unix sockets together.
    Unix,
    Connection(u64),
}

/// The head that one connection receives.
#[derive(Debug)]
pub(in crate::http) struct OpenHead {
    heads: Arc<OpenHeads>,
    holder: Holder,
    /// Present while a part of a head is in memory.
    open: Option<Box<Open>>,
    /// What the earlier heads of the connection may still hold. As few as the large header blocks of a connection.
    kept: Vec<Reserved>,
}

/// What is reserved for a head.
#[derive(Debug)]
pub(in crate::http) struct Reserved {
    heads: Arc<OpenHeads>,
    holder: Holder,
    reservation: Reservation,
}

#[derive(Debug)]
struct Open {
    reserved: Reserved,
    begun: Instant,
    /// Since when there is no room.
    waits: Option<Instant>,
    next_look: Pin<Box<Sleep>>,
}

// === impl OpenHeads ===

impl OpenHeads {
    pub(in crate::http) fn new(ledger: Ledger, largest: usize, metrics: Arc<HttpMetrics>) -> Arc<Self> {
        Arc::new(Self { ledger, largest, taken: Mutex::default(), metrics })
    }

    /// For a connection. `address`: `None` on a Unix socket.
    pub(in crate::http) fn of(self: &Arc<Self>, address: Option<IpAddr>) -> OpenHead {
        self.held_by(address.map_or(Holder::Unix, |address| Holder::Address(group(address))))
    }

    /// For a connection that has a share of its own.
    pub(in crate::http) fn of_connection(self: &Arc<Self>, id: u64) -> OpenHead {
        self.held_by(Holder::Connection(id))
    }

    fn held_by(self: &Arc<Self>, holder: Holder) -> OpenHead {
        OpenHead { heads: Arc::clone(self), holder, open: None, kept: Vec::new() }
    }

    fn take(&self, holder: Holder, bytes: usize) -> bool {
        let most = self.ledger.limit() / SHARE;
        let TakenHeads { all, by_holder } = &mut *self.taken.lock();
        if all.bytes + bytes > most {
            all.refused = Some(Instant::now());
            return false;
        }
        if by_holder.get(&holder).map_or(0, |part| part.bytes) + bytes > most / 2 {
            if let Some(part) = by_holder.get_mut(&holder) {
                part.refused = Some(Instant::now());
            }
            return false;
        }
        all.bytes += bytes;
        by_holder.entry(holder).or_default().bytes += bytes;
        true
    }

    fn give_back(&self, holder: Holder, bytes: usize) {
        let TakenHeads { all, by_holder } = &mut *self.taken.lock();
        all.bytes -= bytes;
        if let Some(part) = by_holder.get_mut(&holder) {
            part.bytes -= bytes;
            if part.bytes == 0 {
                by_holder.remove(&holder);
            }
        }
    }

    /// Whether others wait for what a head of this holder has reserved.
    fn is_wanted(&self, holder: Holder) -> bool {
        let taken = self.taken.lock();
        let mut parts = [Some(&taken.all), taken.by_holder.get(&holder)].into_iter().flatten();
        parts.any(|part| part.refused.is_some_and(|refused| refused.elapsed() < HURRY))
    }
}

// === impl OpenHead ===

impl OpenHead {
    /// The largest head that is accepted.
    pub(in crate::http) fn largest(&self) -> usize {
        self.heads.largest
    }

    /// The bytes that may be read now. `held`: the bytes of an open head that are in memory; 0 if none is open. Pending
    /// while there is no room for more.
    ///
    /// # Errors
    /// The head is not complete after the time that the apiserver's Go server allows; or after [`HURRY`] if memory is
    /// short, if there was no room for so long, or if others wait for what it has reserved.
    pub(in crate::http) fn poll_room(&mut self, cx: &mut Context<'_>, held: usize) -> Poll<io::Result<usize>> {
        if held == 0 {
            self.open = None;
            return Poll::Ready(Ok(READ));
        }
        let (heads, holder, now) = (&self.heads, self.holder, Instant::now());
        let open = self.open.get_or_insert_with(|| {
            let (reserved, next_look) = (Reserved::nothing(heads, holder), Box::pin(sleep_until(now + HURRY)));
            Box::new(Open { reserved, begun: now, waits: None, next_look })
        });
        let has_room = held + PART <= FREE || open.reserved.reserve(held + PART);
        open.waits = if has_room { None } else { open.waits.or(Some(now)) };
        let is_short = heads.ledger.pressure().level() == Level::Short;
        let is_late = is_short || open.reserved.bytes() > 0 && heads.is_wanted(holder);
        let patience = if is_late { HURRY } else { HEAD_TIMEOUT };
        let until = (open.begun + patience).min(open.waits.map_or(now + patience, |since| since + HURRY));
        if now >= until {
            heads.metrics.heads_cut.inc();
            let error = "the head of a request is not complete in time, or takes too much memory";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)));
        }
        open.next_look.as_mut().reset(until.min(now + if has_room { HURRY } else { AGAIN }));
        if open.next_look.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        if has_room { Poll::Ready(Ok(PART)) } else { Poll::Pending }
    }

    /// The head is complete, and nothing of it is held any more.
    pub(in crate::http) fn close(&mut self) {
        self.open = None;
    }

    /// The head is complete, and what was reserved for it may be in use until the connection ends.
    pub(in crate::http) fn keep(&mut self) {
        self.kept.extend(self.open.take().map(|open| open.reserved).filter(|reserved| reserved.bytes() > 0));
    }

    /// Reserves nothing yet, for a request whose head is complete.
    pub(in crate::http) fn nothing(&self) -> Reserved {
        Reserved::nothing(&self.heads, self.holder)
    }

    /// Reserves these bytes for such a request. `None` if there is no room.
    pub(in crate::http) fn reserved(&self, bytes: usize) -> Option<Reserved> {
        let mut reserved = self.nothing();
        reserved.reserve(bytes).then_some(reserved)
    }

    /// Whether something of a head is held.
    pub(in crate::http) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the head of a connection that shares its limits with no other.
    pub(in crate::http) fn unlimited() -> Self {
        OpenHeads::new(Ledger::default(), 1 << 20, Arc::default()).of(None)
    }
}

// === impl Reserved ===

impl Reserved {
    fn nothing(heads: &Arc<OpenHeads>, holder: Holder) -> Self {
        Self { heads: Arc::clone(heads), holder, reservation: heads.ledger.nothing() }
    }

    fn bytes(&self) -> usize {
        self.reservation.bytes()
    }

    /// Reserves these bytes, with those that are reserved already. False if there is no room.
    pub(in crate::http) fn reserve(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes());
        if more == 0 {
            return true;
        }
        let has_room = self.heads.take(self.holder, more);
        if has_room && self.reservation.try_grow(more).is_err() {
            self.heads.give_back(self.holder, more);
            return false;
        }
        has_room
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.bytes() > 0 {
            self.heads.give_back(self.holder, self.bytes());
        }
    }
}

#[cfg(test)]
#[path = "open_head_tests.rs"]
mod tests;
