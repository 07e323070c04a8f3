//! What each resource costs the apiserver, and what it would cost without informerd.
//!
//! A book has what informers have asked, as their [`Meter`] counts it, and the reads of clients by who has answered them: what
//! they would have cost the apiserver, or have cost it although a cache could have answered. Bytes are those that a client is sent that accepts gzip. Nothing is decided by the books yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::apiserver::meter::{Meter, Metered};
use crate::meta::Gvr;
use crate::telemetry::stripes::StripedCounter;

/// The books of all resources that were followed, or read with success. They outlive informers.
#[derive(Debug, Default)]
pub(super) struct Books(Mutex<BTreeMap<Gvr, Arc<Book>>>);

/// The book of one resource.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// What its informers have asked.
    pub(super) meter: Arc<Meter>,
    /// Reads that could be served, by [`Giver`].
    sides: [Side; 3],
}

#[derive(Debug, Default)]
struct Side {
    reads: AtomicU64,
    bytes: StripedCounter,
}

/// Who has given an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// A cache. The read is counted already, see [`super::Informer::serves`].
    Cache,
    /// The apiserver, to another client that has asked the same.
    Shared,
    /// The apiserver.
    Apiserver,
}

/// Books the bytes of one answer, which it goes with.
#[derive(Clone, Debug)]
pub struct Rent(Arc<Answer>);

#[derive(Debug)]
struct Answer {
    book: Arc<Book>,
    giver: Giver,
    /// It is compressed, or a watch. The bytes of others count once all are known.
    as_sent: bool,
    bytes: AtomicU64,
}

/// What the apiserver was spared of a resource. Negative numbers are what informerd has cost it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Reads that caches have answered.
    pub reads: u64,
    /// Those that it did not have to answer, less the requests of informers.
    pub requests: i64,
    pub bytes: i64,
}

// === impl Books ===

impl Books {
    pub(super) fn of(&self, gvr: &Gvr) -> Arc<Book> {
        Arc::clone(self.0.lock().entry(gvr.clone()).or_default())
    }

    /// By resource, as in `deployments.apps`. `others` are our requests for none; they stand under the empty name.
    pub(super) fn balances(&self, others: &Meter) -> BTreeMap<String, Balance> {
        let mut balances = BTreeMap::from([(String::new(), Balance::of(&Book::default(), others.asked()))]);
        for (gvr, book) in &*self.0.lock() {
            let all = balances.entry(gvr.group_resource()).or_default();
            let Balance { reads, requests, bytes } = Balance::of(book, book.meter.asked());
            *all = Balance { reads: all.reads + reads, requests: all.requests + requests, bytes: all.bytes + bytes };
        }
        balances
    }
}

// === impl Book ===

impl Book {
    /// Counts a read that a cache answers.
    pub(super) fn serves(&self) {
        self.side(Giver::Cache).reads.fetch_add(1, Ordering::Relaxed);
    }

    /// How many such reads there were.
    pub(super) fn served(&self) -> u64 {
        self.side(Giver::Cache).reads.load(Ordering::Relaxed)
    }

    /// Counts bytes of an answer from a cache.
    pub(super) fn sent(&self, bytes: usize) {
        self.side(Giver::Cache).bytes.inc_by(self.meter.packed(bytes as u64));
    }

    /// `as_sent`: the answer is compressed, or a watch.
    pub(super) fn rent(self: Arc<Self>, giver: Giver, as_sent: bool) -> Rent {
        if giver != Giver::Cache {
            self.side(giver).reads.fetch_add(1, Ordering::Relaxed);
        }
        Rent(Arc::new(Answer { book: self, giver, as_sent, bytes: AtomicU64::new(0) }))
    }

    fn side(&self, giver: Giver) -> &Side {
        &self.sides[giver as usize]
    }
}

// === impl Rent ===

impl Rent {
    /// Counts bytes of the answer as they are sent.
    pub fn sent(&self, bytes: usize) {
        let answer = &*self.0;
        if answer.as_sent {
            // A watch may last for days.
            answer.book.side(answer.giver).bytes.inc_by(bytes as u64);
        } else {
            answer.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.book.side(self.giver).bytes.inc_by(self.book.meter.packed(*self.bytes.get_mut()));
    }
}

// === impl Balance ===

impl Balance {
    fn of(book: &Book, asked: Metered) -> Self {
        let (reads, shared) = (book.served(), book.side(Giver::Shared));
        let requests = reads + shared.reads.load(Ordering::Relaxed);
        let bytes = book.side(Giver::Cache).bytes.get() + shared.bytes.get();
        let less = |spent: u64, saved: u64| saved.wrapping_sub(spent).cast_signed();
        Self { reads, requests: less(asked.requests, requests), bytes: less(asked.wire, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cache_answers_is_saved_and_what_is_forwarded_is_not() {
        let (books, gvr) = (Books::default(), Gvr::new("apps", "v1", "deployments"));
        let book = books.of(&gvr);
        let balance = || books.balances(&Meter::default())["deployments.apps"];
        book.serves();
        let watch = Arc::clone(&book).rent(Giver::Cache, true);
        watch.sent(1 << 20);
        assert_eq!(balance(), Balance { reads: 1, requests: 1, bytes: 1 << 20 }, "while it lasts");
        // A list that is not compressed would have been for others, by the ratio that was measured.
        book.meter.listed(1_000, (1 << 20, 8 << 20));
        let list = Arc::clone(&book).rent(Giver::Shared, false);
        list.sent(4 << 20);
        list.sent(4 << 20);
        assert_eq!(balance().bytes, 1 << 20, "how much it is shows at its end");
        drop((list.clone(), list));
        assert_eq!(balance(), Balance { reads: 1, requests: 2, bytes: 2 << 20 });
        let forwarded = Arc::clone(&book).rent(Giver::Apiserver, true);
        forwarded.sent(500);
        assert_eq!(balance(), Balance { reads: 1, requests: 2, bytes: 2 << 20 });
        let side = book.side(Giver::Apiserver);
        assert_eq!((side.reads.load(Ordering::Relaxed), side.bytes.get()), (1, 500));
        // The versions of a type are one resource.
        books.of(&Gvr::new("apps", "v1beta1", "deployments")).serves();
        assert_eq!(balance().reads, 2);
        assert_eq!(books.balances(&Meter::default()).keys().collect::<Vec<_>>(), ["", "deployments.apps"]);
    }
}
