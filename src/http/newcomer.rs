//! Connections of delegated listeners whose client nobody has authenticated yet. Anybody can open one, so all of them
//! together hold little: there are few of them, they may say little, and their requests hold few bytes.
//!
//! A connection stops being a newcomer with its first request whose credentials are accepted. From then on it has the limits
//! of every other connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use http::Request;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::metrics::HttpMetrics;
use crate::telemetry::gauge::Raised;

/// Newcomers at once. For one more, another one has to leave.
pub(super) const MOST: usize = 128;
/// A newcomer that has been here for this long may be sent away for another one. Clients authenticate in milliseconds, or in
/// seconds where hundreds come at once and the processor is busy with their handshakes.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where another address has so many times the newcomers of one, this one does not wait.
const CROWDED: usize = 4;
/// How long a newcomer without a request may stay: the time that Go's server of the apiserver has for a head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);
/// The headers of a newcomer's request, counted as HTTP/2 counts a header list (RFC 9113, 6.5.2).
const HEADER_LIST: usize = 64 << 10;
const HEADER_OVERHEAD: usize = 32;
/// Requests of one newcomer that are judged at once. More are read when one of them is judged: a client that begins with
/// hundreds of watches waits for the first of them.
const REQUESTS: usize = 8;
/// Calls of one newcomer that last although nobody is asked who it is: health and reflection.
const LASTING: usize = 4;
/// Bytes of all heads that wait until it is known whose they are.
const HELD: usize = 4 << 20;
/// What a header costs in memory besides its bytes, about.
const HEADER_COST: usize = 128;
/// Newcomers that may go on although nobody can say now who they are.
const UNJUDGED: usize = 16;

/// All newcomers of this process.
#[derive(Debug)]
pub(super) struct Newcomers {
    present: Mutex<Present>,
    left: Notify,
    held: AtomicUsize,
    unjudged: Arc<Semaphore>,
    metrics: Arc<HttpMetrics>,
}

#[derive(Debug, Default)]
struct Present {
    next: u64,
    /// In the order in which they came.
    by_id: BTreeMap<u64, Visit>,
}

#[derive(Debug)]
struct Visit {
    address: IpAddr,
    since: Instant,
    leave: CancellationToken,
    _open: Raised,
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
    /// It may say more than others.
    unjudged: Mutex<Option<OwnedSemaphorePermit>>,
    /// The connection's reader, where it has to wait for a request to be judged.
    reader: Mutex<Option<Waker>>,
}

/// One request of a newcomer, from its head until it is answered.
#[derive(Debug)]
pub struct Heard {
    newcomer: Arc<Newcomer>,
    held: usize,
}

/// A call of a newcomer, until its answer ends.
#[derive(Debug)]
pub struct Lasting(Arc<Newcomer>);

/// Why a newcomer's request is refused before anything of it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// Its head is too large.
    Head,
    /// The heads of all newcomers that wait to be judged are too large.
    Requests,
}

/// What a reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Over,
    /// Until a request is judged.
    Judged,
    /// There is nothing to wait for.
    Never,
}

// === impl Newcomers ===

impl Newcomers {
    pub(super) fn new(metrics: Arc<HttpMetrics>) -> Arc<Self> {
        let (present, left, held) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        Arc::new(Self { present, left, held, unjudged: Arc::new(Semaphore::new(UNJUDGED)), metrics })
    }

    /// A place for a new connection. Where there is none, the oldest newcomer of the address with the most of them leaves:
    /// once it has had [`PATIENCE`], or at once if that address has [`CROWDED`] times as many as this one.
    ///
    /// # Errors
    /// When that will be.
    pub(super) fn try_place(self: &Arc<Self>, address: IpAddr) -> Result<Arc<Newcomer>, Instant> {
        let mut present = self.present.lock();
        if let Some((id, leaves)) = present.in_the_way(address) {
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

    /// A place for a new connection, once there is one. Nobody else may wait for this.
    pub(super) async fn place(self: &Arc<Self>, address: IpAddr) -> Arc<Newcomer> {
        loop {
            let left = self.left.notified();
            let leaves = match self.try_place(address) {
                Ok(newcomer) => return newcomer,
                Err(leaves) => leaves,
            };
            tokio::select! {
                () = left => {}
                () = sleep_until(leaves) => {}
            }
        }
    }

    fn enter(self: &Arc<Self>, present: &mut Present, address: IpAddr) -> Arc<Newcomer> {
        let (id, since, leave) = (present.next, Instant::now(), CancellationToken::new());
        present.next += 1;
        let open = Raised::new(&self.metrics.newcomers_open);
        present.by_id.insert(id, Visit { address, since, leave: leave.clone(), _open: open });
        let (unjudged, reader) = (Mutex::default(), Mutex::default());
        let (authenticated, requests, lasting) = Default::default();
        Arc::new(Newcomer {
            all: Arc::clone(self),
            id,
            since,
            leave,
            authenticated,
            requests,
            lasting,
            unjudged,
            reader,
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
    /// The newcomer that leaves before one of this address can come, and when. `None` while there is room.
    fn in_the_way(&self, address: IpAddr) -> Option<(u64, Instant)> {
        if self.by_id.len() < MOST {
            return None;
        }
        let mut of_address = HashMap::<IpAddr, (usize, u64, Instant)>::new();
        for (id, visit) in self.by_id.iter().rev() {
            let entry = of_address.entry(visit.address).or_insert((0, *id, visit.since));
            *entry = (entry.0 + 1, *id, visit.since);
        }
        // If two addresses have equally many, the one with the oldest newcomer.
        let own = of_address.get(&address).map_or(0, |(count, ..)| *count);
        let most = of_address.into_values().max_by_key(|(count, id, _)| (*count, u64::MAX - id));
        most.map(|(count, id, since)| (id, if count >= CROWDED * (own + 1) { since } else { since + PATIENCE }))
    }
}

// === impl Newcomer ===

impl Newcomer {
    pub fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Acquire)
    }

    /// Somebody has accepted its credentials.
    pub fn authenticated(&self) {
        if !self.authenticated.swap(true, Ordering::AcqRel) {
            self.all.leave(self.id);
            *self.unjudged.lock() = None;
            self.wake();
        }
    }

    /// Nobody can say now who it is. True if it may go on all the same, to be judged by the apiserver.
    pub fn go_on_unjudged(&self) -> bool {
        let mut unjudged = self.unjudged.lock();
        if unjudged.is_none() {
            *unjudged = Arc::clone(&self.all.unjudged).try_acquire_owned().ok();
        }
        let goes_on = unjudged.is_some();
        drop(unjudged);
        self.wake();
        goes_on
    }

    /// Waits until it has to leave: for another one, or because it has not said anything for too long.
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

    /// Takes a request in, or refuses it. `None`: it is no newcomer any more.
    ///
    /// # Errors
    /// It is too much.
    pub fn hear<B>(self: &Arc<Self>, head: &Request<B>) -> Result<Option<Heard>, TooMuch> {
        if self.is_authenticated() {
            return Ok(None);
        }
        let bytes: usize = head.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let target = head.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let (count, bytes) = (head.headers().len(), bytes + target);
        if bytes + count * HEADER_OVERHEAD > HEADER_LIST {
            return Err(self.refused(TooMuch::Head));
        }
        let held = bytes + count * HEADER_COST;
        self.requests.fetch_add(1, Ordering::AcqRel);
        let before = self.all.held.fetch_add(held, Ordering::AcqRel);
        let heard = Heard { newcomer: Arc::clone(self), held };
        // What was added is taken back when this is dropped.
        if before + held > HELD {
            return Err(self.refused(TooMuch::Requests));
        }
        Ok(Some(heard))
    }

    /// A call that only ends when its client wants it to. `None`: it is no newcomer any more.
    ///
    /// # Errors
    /// There are too many.
    pub fn lasting(self: &Arc<Self>) -> Result<Option<Lasting>, TooMuch> {
        if self.is_authenticated() {
            return Ok(None);
        }
        let before = self.lasting.fetch_add(1, Ordering::AcqRel);
        // What was added is taken back when this is dropped.
        let lasting = Lasting(Arc::clone(self));
        if before < LASTING { Ok(Some(lasting)) } else { Err(self.refused(TooMuch::Requests)) }
    }

    /// What its reader may do now; it is woken when that changes. `said_all`: what a newcomer may say.
    pub(super) fn reader_may(&self, reader: &Waker, said_all: bool) -> Wait {
        // Before the look at what it waits for, so that nothing is missed in between.
        *self.reader.lock() = Some(reader.clone());
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

    fn wake(&self) {
        if let Some(reader) = self.reader.lock().take() {
            reader.wake();
        }
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
        self.newcomer.wake();
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
