//! Admission control of newcomers: connections of delegated listeners whose client is not authenticated yet. Anyone can
//! open one, so the total cost of all of them is bounded: there are few of them, each may send little, and their
//! requests hold few bytes.
//!
//! A connection stops being a newcomer with its first request whose credentials are accepted. From then on it has the
//! same limits as every other connection.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use http::Request;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::head_size::{self, HEADER_COST};
use crate::http::record::HttpMetrics;
use crate::lifecycle::slots::group;
use crate::telemetry::gauge::Raised;

/// The most newcomers at once, but at most half of all connections: those that wait for this take a quarter. Another one must
/// leave before one more can come.
pub(super) const MOST: usize = 128;
/// A newcomer that has been here for this long may be evicted for another one. Clients authenticate in milliseconds, or
/// in seconds if hundreds come at once and the CPU is busy with their handshakes.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for a newcomer that has sent nothing. A client begins its handshake as soon as it is connected, and silence
/// costs it nothing.
const SILENCE: Duration = Duration::from_secs(1);
/// How long one that has waited in vain waits before it looks again, unless a newcomer leaves by itself.
const AGAIN: Duration = Duration::from_millis(250);
/// If another address has this many times the newcomers of the new one's address, the new one does not wait.
const CROWDED: usize = 4;
/// How long a newcomer without a request may stay: the time that the apiserver's Go server allows for the headers.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// The largest headers of a newcomer's request, counted as HTTP/2 counts a header list (RFC 9113, 6.5.2).
const MAX_HEADER_LIST: usize = 64 << 10;
const HEADER_OVERHEAD: usize = 32;
/// The most requests of one newcomer that are authenticated at once. More are read when one of them is decided: a
/// client that starts with hundreds of watches waits for the first of them.
const REQUESTS: usize = 8;
/// The most open calls of one newcomer that need no authentication: health and reflection.
const LASTING: usize = 4;
/// The most bytes of all request headers that wait for authentication.
const HELD: usize = 4 << 20;
/// The most answers over HTTP/1.1 that refuse a newcomer. An upgrade that is refused counts as all of them.
const MOST_REFUSED: usize = 8;
/// The most newcomers that may go on although nothing can authenticate them now.
const UNJUDGED: usize = 16;

/// All newcomers of this process.
#[derive(Debug)]
pub(in crate::http) struct Newcomers {
    most: usize,
    present: Mutex<Present>,
    left: Notify,
    held: AtomicUsize,
    unjudged: Arc<Semaphore>,
    metrics: Arc<HttpMetrics>,
}

#[derive(Debug, Default)]
struct Present {
    next: u64,
    /// In the order of arrival.
    by_id: BTreeMap<u64, Visit>,
}

#[derive(Debug)]
struct Visit {
    address: IpAddr,
    since: Instant,
    stage: Stage,
    leave: CancellationToken,
    _open: Raised,
}

/// How far a newcomer has got. Who has got less far leaves sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::http) enum Stage {
    /// It has sent nothing.
    Silent,
    /// It has begun the TLS handshake.
    Begun,
    /// The handshake is complete.
    Encrypted,
}

/// A connection that is, or was, a newcomer.
#[derive(Debug)]
pub struct Newcomer {
    all: Arc<Newcomers>,
    id: u64,
    since: Instant,
    leave: CancellationToken,
    authenticated: AtomicBool,
    requests: AtomicUsize,
    lasting: AtomicUsize,
    refusals: AtomicUsize,
    /// Present if this newcomer may send more than others.
    unjudged: Mutex<Option<OwnedSemaphorePermit>>,
    /// The waker of the connection's reader, which may have to wait until a request is authenticated.
    reader: AtomicWaker,
}

/// One request of a newcomer, from its headers until it is answered.
#[derive(Debug)]
pub struct Heard {
    newcomer: Arc<Newcomer>,
    held: usize,
}

/// A call of a newcomer, until its answer ends.
#[derive(Debug)]
pub struct Lasting(Arc<Newcomer>);

/// Why a newcomer's request is refused before anything else is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// Its headers are too large.
    Head,
    /// The headers of all newcomers that wait for authentication are too large in total.
    Requests,
}

/// What a reader has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Wait {
    Over,
    /// Until a request is authenticated or refused.
    Judged,
    /// The client has sent too much and there is nothing to wait for.
    Never,
}

// === impl Newcomers ===

impl Newcomers {
    /// `connections`: the most of all.
    pub(in crate::http) fn new(connections: usize, metrics: Arc<HttpMetrics>) -> Arc<Self> {
        let most = MOST.min(connections / 2).max(1);
        let (present, left, held) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        Arc::new(Self { most, present, left, held, unjudged: Arc::new(Semaphore::new(UNJUDGED)), metrics })
    }

    /// Returns a place for a new connection. If there is none, another newcomer is evicted: after [`PATIENCE`] or
    /// [`SILENCE`], or at once if its address has [`CROWDED`] times as many as this one.
    ///
    /// # Errors
    /// There is no place yet. The error is the time at which one can be evicted.
    pub(in crate::http) fn try_place(self: &Arc<Self>, address: IpAddr) -> Result<Arc<Newcomer>, Instant> {
        let address = group(address);
        let mut present = self.present.lock();
        if let Some((id, leaves)) = present.in_the_way(address, self.most) {
            if leaves > Instant::now() {
                return Err(leaves);
            }
            if let Some(visit) = present.by_id.remove(&id) {
                visit.leave.cancel();
                self.metrics.newcomers_evicted.inc();
            }
        }
        Ok(self.enter(&mut present, address))
    }

    /// Waits for a place for a new connection. No other connection may have to wait for this call.
    pub(in crate::http) async fn place(self: &Arc<Self>, address: IpAddr) -> Arc<Newcomer> {
        let mut pause = Duration::ZERO;
        loop {
            let left = self.left.notified();
            let leaves = match self.try_place(address) {
                Ok(newcomer) => return newcomer,
                Err(leaves) => leaves,
            };
            tokio::select! {
                () = left => {}
                () = sleep_until(leaves.max(Instant::now() + pause)) => {}
            }
            // Many may wait, and one comes in each time.
            pause = AGAIN;
        }
    }

    fn enter(self: &Arc<Self>, present: &mut Present, address: IpAddr) -> Arc<Newcomer> {
        let (id, since, leave) = (present.next, Instant::now(), CancellationToken::new());
        present.next += 1;
        let open = Raised::new(&self.metrics.newcomers_open);
        let stage = Stage::Silent;
        present.by_id.insert(id, Visit { address, since, stage, leave: leave.clone(), _open: open });
        Arc::new(Newcomer {
            all: Arc::clone(self),
            id,
            since,
            leave,
            authenticated: AtomicBool::default(),
            requests: AtomicUsize::default(),
            lasting: AtomicUsize::default(),
            refusals: AtomicUsize::default(),
            unjudged: Mutex::default(),
            reader: AtomicWaker::default(),
        })
    }

    fn leave(&self, id: u64) {
        if self.present.lock().by_id.remove(&id).is_some() {
            self.left.notify_one();
        }
    }
}

// === impl Present ===

impl Present {
    /// The newcomer that has to leave before one of this address can come, and the time when it leaves. `None` while
    /// there is room. Of all that may leave now, those of a crowd are chosen first, then those that have got less far,
    /// then those of the address with the most, and of these the oldest.
    fn in_the_way(&self, address: IpAddr, most: usize) -> Option<(u64, Instant)> {
        if self.by_id.len() < most {
            return None;
        }
        let mut of_address = HashMap::<IpAddr, usize>::new();
        for visit in self.by_id.values() {
            *of_address.entry(visit.address).or_default() += 1;
        }
        let of_address = |address| of_address.get(&address).copied().unwrap_or_default();
        let (now, own) = (Instant::now(), of_address(address));
        let order = |id: &u64, visit: &Visit| {
            let count = of_address(visit.address);
            let in_crowd = count >= CROWDED * (own + 1);
            let patience = if visit.stage == Stage::Silent { SILENCE } else { PATIENCE };
            let leaves = if in_crowd { now } else { now.max(visit.since + patience) };
            (leaves, !in_crowd, visit.stage, Reverse(count), *id)
        };
        self.by_id.iter().map(|(id, visit)| order(id, visit)).min().map(|(leaves, .., id)| (id, leaves))
    }
}

// === impl Newcomer ===

impl Newcomer {
    pub fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Acquire)
    }

    pub(super) fn reached(&self, stage: Stage) {
        if let Some(visit) = self.all.present.lock().by_id.get_mut(&self.id) {
            visit.stage = stage;
        }
    }

    /// Marks the client as authenticated.
    pub fn authenticated(&self) {
        if !self.authenticated.swap(true, Ordering::AcqRel) {
            self.all.leave(self.id);
            *self.unjudged.lock() = None;
            self.reader.wake();
        }
    }

    /// Called when nothing can authenticate the client now. Returns true if the client may still go on; the apiserver
    /// then decides.
    pub fn go_on_unjudged(&self) -> bool {
        let mut unjudged = self.unjudged.lock();
        if unjudged.is_none() {
            *unjudged = Arc::clone(&self.all.unjudged).try_acquire_owned().ok();
        }
        let goes_on = unjudged.is_some();
        drop(unjudged);
        self.reader.wake();
        goes_on
    }

    /// Whether the credentials of its requests were checked, and none were accepted.
    pub(in crate::http) fn is_judged(&self) -> bool {
        !self.is_authenticated() && self.unjudged.lock().is_none()
    }

    /// Counts an answer that refuses it. Returns whether that is the last one of its connection. An upgrade may have cost the
    /// apiserver a connection, and costs the client one, too.
    pub(in crate::http) fn is_last_refusal(&self, upgrades: bool) -> bool {
        let count = if upgrades { MOST_REFUSED } else { 1 };
        !self.is_authenticated() && self.refusals.fetch_add(count, Ordering::Relaxed) + count >= MOST_REFUSED
    }

    /// Waits until this newcomer has to leave: because another one replaces it, or because it was silent for too long.
    pub async fn sent_away(&self) {
        let silent = async {
            let mut until = self.since + HEAD_TIMEOUT;
            loop {
                sleep_until(until).await;
                if self.is_authenticated() {
                    std::future::pending::<()>().await;
                }
                if self.requests.load(Ordering::Acquire) == 0 {
                    return;
                }
                until = Instant::now() + HEAD_TIMEOUT;
            }
        };
        tokio::select! {
            () = self.leave.cancelled() => {}
            () = silent => {}
        }
    }

    /// Registers a request, or refuses it. `None` if the client is authenticated by now.
    ///
    /// # Errors
    /// The request exceeds a limit.
    pub fn hear<B>(self: &Arc<Self>, head: &Request<B>) -> Result<Option<Heard>, TooMuch> {
        if self.is_authenticated() {
            return Ok(None);
        }
        let (count, bytes) = (head.headers().len(), head_size::bytes(head.headers(), head.uri()));
        if bytes + count * HEADER_OVERHEAD > MAX_HEADER_LIST {
            return Err(self.refused(TooMuch::Head));
        }
        let held = bytes + count * HEADER_COST;
        self.requests.fetch_add(1, Ordering::AcqRel);
        let before = self.all.held.fetch_add(held, Ordering::AcqRel);
        let heard = Heard { newcomer: Arc::clone(self), held };
        // Dropping `heard` subtracts what was added.
        if before + held > HELD {
            return Err(self.refused(TooMuch::Requests));
        }
        Ok(Some(heard))
    }

    /// Registers a call that ends only when its client ends it. `None` if the client is authenticated by now.
    ///
    /// # Errors
    /// There are too many such calls.
    pub fn lasting(self: &Arc<Self>) -> Result<Option<Lasting>, TooMuch> {
        if self.is_authenticated() {
            return Ok(None);
        }
        let before = self.lasting.fetch_add(1, Ordering::AcqRel);
        // Dropping `lasting` subtracts what was added.
        let lasting = Lasting(Arc::clone(self));
        if before < LASTING { Ok(Some(lasting)) } else { Err(self.refused(TooMuch::Requests)) }
    }

    /// What the connection's reader may do now. The reader is woken when that changes. `said_all`: the newcomer has
    /// sent as much as it may.
    pub(in crate::http) fn reader_may(&self, reader: &Waker, said_all: bool) -> Wait {
        // Store the waker before checking the state, so that no change is missed in between.
        self.reader.register(reader);
        if self.is_authenticated() {
            return Wait::Over;
        }
        let said_all = said_all && self.unjudged.lock().is_none();
        match self.requests.load(Ordering::Acquire) {
            0 if said_all => Wait::Never,
            running if said_all || running >= REQUESTS => Wait::Judged,
            _ => Wait::Over,
        }
    }

    fn refused(&self, why: TooMuch) -> TooMuch {
        self.all.metrics.newcomers_refused.inc();
        why
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.all.leave(self.id);
    }
}

// === impl Heard ===

impl Drop for Heard {
    fn drop(&mut self) {
        self.newcomer.all.held.fetch_sub(self.held, Ordering::AcqRel);
        self.newcomer.requests.fetch_sub(1, Ordering::AcqRel);
        self.newcomer.reader.wake();
    }
}

// === impl Lasting ===

impl Drop for Lasting {
    fn drop(&mut self) {
        self.0.lasting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[path = "newcomer_tests.rs"]
mod tests;
