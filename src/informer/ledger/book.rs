//! What each resource costs the apiserver, and what it would cost without informerd.
//!
//! A book has what informers have asked ([`Meter`]), and what the reads of clients would have cost the apiserver that it did not
//! have to answer. Bytes are those that a client is sent that accepts gzip, unless they are named plain.

use std::collections::BTreeMap;
use std::iter;
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

/// The book of one resource, or of the answers of one of its informers.
#[derive(Debug, Default)]
pub(in crate::informer) struct Book {
    /// That of the resource, if this is an informer's.
    of: Option<Arc<Self>>,
    /// What its informers have asked.
    pub meter: Arc<Meter>,
    /// Reads that a cache has answered, and those that the apiserver has answered once for several clients.
    sides: [Side; 2],
    /// Mean bytes, before compression, of the lists of parts that were forwarded. Each counts as much as all before it.
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
    /// The apiserver, in a list of a namespace or a selection. Only the mean of such answers is kept.
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
    /// The requests that it did not have to answer, less those of informers.
    pub requests: i64,
    pub bytes: i64,
}

/// So many resources have a book of their own. All others share one.
const MOST: usize = 1_024;
/// Gets fade by half in this time.
const LATELY: Duration = Duration::from_secs(3);

// === impl Books ===

impl Books {
    pub(in crate::informer) fn of(&self, gvr: &Gvr) -> Arc<Book> {
        let mut books = self.books.lock();
        let is_one_more = books.len() >= MOST && !books.contains_key(gvr);
        let gvr = if is_one_more { Gvr::new("", "", "other") } else { gvr.clone() };
        Arc::clone(books.entry(gvr).or_default())
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
    /// The book of one of the informers.
    pub(in crate::informer) fn of_informer(self: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { of: Some(Arc::clone(self)), meter: Arc::clone(&self.meter), ..Self::default() })
    }

    /// Counts a read that a cache answers.
    pub(in crate::informer) fn serves(&self) {
        for book in self.all() {
            book.side(Giver::Cache).reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many such reads there were of the resource.
    pub(in crate::informer) fn served(&self) -> u64 {
        self.of.as_deref().unwrap_or(self).side(Giver::Cache).reads.load(Ordering::Relaxed)
    }

    /// Counts bytes of an answer from a cache.
    pub(in crate::informer) fn sent(&self, bytes: usize) {
        self.add(Giver::Cache, self.meter.packed(bytes as u64));
    }

    /// `as_sent`: the answer is compressed, or a watch.
    pub(in crate::informer) fn rent(self: Arc<Self>, giver: Giver, as_sent: bool) -> Rent {
        if giver == Giver::Shared {
            self.side(giver).reads.fetch_add(1, Ordering::Relaxed);
        }
        Rent(Arc::new(Answer { book: self, giver, as_sent, bytes: AtomicU64::new(0) }))
    }

    /// The bytes of answers from caches, or from that of the informer.
    pub(in crate::informer) fn earned(&self) -> f64 {
        let side = self.side(Giver::Cache);
        bytes(side.reads.load(Ordering::Relaxed), side.bytes.get())
    }

    /// What gets of the newest state have cost lately, with one more if this is one.
    pub(in crate::informer) fn gets(&self, now: Instant, is_one: bool) -> Cost {
        let mut gets = self.gets.lock();
        if is_one {
            gets.add(QUESTION, now, LATELY);
        }
        gets.at(now, LATELY)
    }

    fn add(&self, giver: Giver, bytes: u64) {
        for book in self.all() {
            book.side(giver).bytes.inc_by(bytes);
        }
    }

    /// This book, and that of its resource.
    fn all(&self) -> impl Iterator<Item = &Self> {
        iter::once(self).chain(self.of.as_deref())
    }

    fn side(&self, giver: Giver) -> &Side {
        &self.sides[usize::from(giver == Giver::Shared)]
    }
}

// === impl Rent ===

impl Rent {
    /// The same for an answer that is compressed.
    #[must_use]
    pub fn compressed(mut self, is_so: bool) -> Self {
        if let Some(answer) = Arc::get_mut(&mut self.0) {
            answer.as_sent = is_so;
        }
        self
    }

    /// Counts bytes of the answer as they are sent.
    pub fn sent(&self, bytes: usize) {
        let answer = &*self.0;
        if answer.as_sent && answer.giver != Giver::ApiserverOfPart {
            // A watch may last for days.
            answer.book.add(answer.giver, bytes as u64);
        } else {
            answer.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let (bytes, meter) = (*self.bytes.get_mut(), &self.book.meter);
        if self.giver == Giver::ApiserverOfPart {
            let plain = if self.as_sent { meter.unpacked(bytes) } else { bytes } as f64;
            let mut answers = self.book.answers.lock();
            *answers = Some(answers.map_or(plain, |mean| f64::midpoint(mean, plain)));
        } else {
            self.book.add(self.giver, if self.as_sent { bytes } else { meter.packed(bytes) });
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
        assert_eq!(*book.answers.lock(), None, "they are no measure of parts");
        Arc::clone(&book).rent(Giver::ApiserverOfPart, true).sent(500);
        assert_eq!(balance(), Balance { reads: 1, requests: 2, bytes: 2 << 20 });
        // The versions of a type are one resource.
        books.of(&Gvr::new("apps", "v1beta1", "deployments")).serves();
        assert_eq!(balance().reads, 2);
        assert_eq!(books.balances(&Meter::default()).keys().collect::<Vec<_>>(), ["", "deployments.apps"]);
    }

    #[test]
    fn there_is_a_bound_on_the_resources_with_books() {
        let (books, name) = (Books::default(), |n: usize| Gvr::new("", "v1", &format!("made-up-{n}")));
        for n in 0..5_000 {
            books.of(&name(n)).serves();
        }
        let balances = books.balances(&Meter::default());
        // With that of no resource.
        assert_eq!((balances.len(), balances["other"].reads), (MOST + 2, (5_000 - MOST) as u64));
        books.of(&name(0)).serves();
        assert_eq!(books.of(&name(0)).served(), 2, "it stays");
    }

    #[test]
    fn lists_of_parts_are_measured_before_compression() {
        let book = Arc::<Book>::default();
        let listed = |as_sent, sizes: &[usize]| {
            let rent = Arc::clone(&book).rent(Giver::ApiserverOfPart, as_sent);
            sizes.iter().for_each(|bytes| rent.sent(*bytes));
            drop(rent);
            book.answers.lock().unwrap()
        };
        // Each as much as all before it, so that the sum of the means is that of the answers.
        assert_eq!([listed(false, &[600, 400]), listed(true, &[100, 400]), listed(true, &[])], [1000.0, 1750.0, 875.0]);
        book.meter.listed(1_000, (1 << 20, 8 << 20));
        assert_eq!(listed(true, &[875]), f64::midpoint(875.0, 7_000.0), "by the ratio that was measured");
    }

    #[test]
    fn caches_earn_what_their_answers_would_have_cost() {
        let book = Arc::<Book>::default();
        Arc::clone(&book).rent(Giver::ApiserverOfPart, true).sent(700);
        assert_eq!(book.earned(), 0.0);
        book.serves();
        book.sent(1_500);
        assert_eq!(book.earned(), 2_000.0, "with its head");
        let (one, other) = (book.of_informer(), book.of_informer());
        one.serves();
        Arc::clone(&one).rent(Giver::Cache, true).sent(1_000);
        assert_eq!((one.earned(), other.earned(), book.earned()), (1_500.0, 0.0, 3_500.0));
        assert_eq!([&one, &other, &book].map(|book| book.served()), [2; 3], "of the resource");
    }
}
