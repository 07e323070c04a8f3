//! What each resource costs the apiserver, and what it would cost without informerd.
//!
//! A book has what informers have asked ([`Meter`]), and the reads of clients by who has answered them: what they would have cost
//! the apiserver, or have cost it although a cache could have answered. Bytes are those that a client is sent that accepts gzip.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::accounts::Accounts;
use super::cost::{Cost, Fading, QUESTION, bytes};
use crate::apiserver::meter::{Meter, Metered};
use crate::meta::Gvr;
use crate::telemetry::stripes::StripedCounter;

/// The books of all resources that were read and that there are. They outlive informers.
#[derive(Debug, Default)]
pub(in crate::informer) struct Books {
    books: Mutex<BTreeMap<Gvr, Arc<Book>>>,
    pub accounts: Mutex<Accounts>,
}

/// The book of one resource.
#[derive(Debug, Default)]
pub(in crate::informer) struct Book {
    /// What its informers have asked.
    pub meter: Arc<Meter>,
    /// Reads that could be served, by [`Giver`].
    sides: [Side; 4],
    /// Mean bytes of the lists of parts that were forwarded. Each counts as much as all before it.
    pub answers: Mutex<Option<f64>>,
    /// Gets of the newest state.
    gets: Mutex<Fading>,
}

#[derive(Debug, Default)]
struct Side {
    reads: AtomicU64,
    bytes: StripedCounter,
}

/// Who has given an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// A cache. The read is counted already, see [`crate::informer::Informer::serves`].
    Cache,
    /// The apiserver, to another client that has asked the same.
    Shared,
    /// The apiserver.
    Apiserver,
    /// The apiserver, in a list of a namespace or a selection.
    ApiserverOfPart,
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

/// Gets fade by half in this time.
const LATELY: Duration = Duration::from_secs(3);

// === impl Books ===

impl Books {
    pub(in crate::informer) fn of(&self, gvr: &Gvr) -> Arc<Book> {
        Arc::clone(self.books.lock().entry(gvr.clone()).or_default())
    }

    /// By resource, as in `deployments.apps`. `others` are our requests for none; they stand under the empty name.
    pub(in crate::informer) fn balances(&self, others: &Meter) -> BTreeMap<String, Balance> {
        let mut balances = BTreeMap::from([(String::new(), Balance::of(&Book::default(), others.asked()))]);
        for (gvr, book) in &*self.books.lock() {
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
    pub(in crate::informer) fn serves(&self) {
        self.side(Giver::Cache).reads.fetch_add(1, Ordering::Relaxed);
    }

    /// How many such reads there were.
    pub(in crate::informer) fn served(&self) -> u64 {
        self.side(Giver::Cache).reads.load(Ordering::Relaxed)
    }

    /// Counts bytes of an answer from a cache.
    pub(in crate::informer) fn sent(&self, bytes: usize) {
        self.side(Giver::Cache).bytes.inc_by(self.meter.packed(bytes as u64));
    }

    /// `as_sent`: the answer is compressed, or a watch.
    pub(in crate::informer) fn rent(self: Arc<Self>, giver: Giver, as_sent: bool) -> Rent {
        if giver != Giver::Cache {
            self.side(giver).reads.fetch_add(1, Ordering::Relaxed);
        }
        Rent(Arc::new(Answer { book: self, giver, as_sent, bytes: AtomicU64::new(0) }))
    }

    /// The bytes of answers from caches.
    pub(in crate::informer) fn earned(&self) -> f64 {
        bytes(self.served(), self.side(Giver::Cache).bytes.get())
    }

    /// What gets of the newest state have cost lately, with one more if this is one.
    pub(in crate::informer) fn gets(&self, now: Instant, is_one: bool) -> Cost {
        let mut gets = self.gets.lock();
        if is_one {
            gets.add(QUESTION, now, LATELY);
        }
        gets.at(now, LATELY)
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
        if answer.as_sent && answer.giver != Giver::ApiserverOfPart {
            // A watch may last for days.
            answer.book.side(answer.giver).bytes.inc_by(bytes as u64);
        } else {
            answer.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        let bytes = if self.as_sent { bytes } else { self.book.meter.packed(bytes) };
        self.book.side(self.giver).bytes.inc_by(bytes);
        if self.giver == Giver::ApiserverOfPart {
            let mut answers = self.book.answers.lock();
            *answers = Some(answers.map_or(bytes as f64, |mean| f64::midpoint(mean, bytes as f64)));
        }
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
        assert_eq!(*book.answers.lock(), None, "watches and lists of everything are no measure of parts");
        // The versions of a type are one resource.
        books.of(&Gvr::new("apps", "v1beta1", "deployments")).serves();
        assert_eq!(balance().reads, 2);
        assert_eq!(books.balances(&Meter::default()).keys().collect::<Vec<_>>(), ["", "deployments.apps"]);
    }

    #[test]
    fn lists_of_parts_are_measured_as_clients_with_gzip_are_sent_them() {
        let book = Arc::<Book>::default();
        let listed = |as_sent, sizes: &[usize]| {
            let rent = Arc::clone(&book).rent(Giver::ApiserverOfPart, as_sent);
            sizes.iter().for_each(|bytes| rent.sent(*bytes));
            drop(rent);
            book.answers.lock().unwrap()
        };
        // Each as much as all before it, so that the sum of the means is that of the answers.
        assert_eq!([listed(false, &[600, 400]), listed(true, &[100, 400]), listed(true, &[])], [1000.0, 750.0, 375.0]);
        let packed = book.meter.packed(10 << 20) as f64;
        assert_eq!(listed(false, &[10 << 20]), f64::midpoint(375.0, packed));
    }

    #[test]
    fn caches_earn_what_their_answers_would_have_cost() {
        let book = Arc::<Book>::default();
        Arc::clone(&book).rent(Giver::Apiserver, true).sent(700);
        assert_eq!(book.earned(), 0.0);
        book.serves();
        book.sent(1_500);
        assert_eq!(book.earned(), 2_000.0, "with its head");
    }
}
