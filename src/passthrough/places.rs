//! What the requests to the apiserver that are under way may take together: places, and memory for their answers. Nobody
//! takes all of it.
//!
//! - A client takes half of it, or five eighths while it is alone. Of requests that last as long as their client wants, it
//!   takes three eighths, alone or not, because these would still be there when others come.
//! - All clients that have much take five eighths together.
//! - The next eighth is for clients that have little, and the last quarter for their short requests.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use crate::auth::Client;
use crate::memory::{Lack, Ledger, Reservation};

/// The places of all requests, and the memory of their answers.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    ledger: Ledger,
    taken: Mutex<TakenPlaces>,
    /// A place or memory was given back. There may be none left when who waits for that has learned of it.
    pub(super) freed: Notify,
}

#[derive(Debug, Default)]
struct TakenPlaces {
    all: Share,
    by_client: HashMap<Client, Share>,
}

/// What a client has, or all have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    waiting: usize,
    requests: usize,
    bytes: usize,
}

/// The place of a request, until the apiserver's answer is read.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: Client,
}

/// A request that waits for room.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    places: &'a Places,
    client: &'a Client,
}

/// The memory of an answer, until its client has taken it.
#[derive(Debug)]
pub(super) struct Held {
    places: Arc<Places>,
    client: Client,
    reserved: Reservation,
}

/// The most requests that wait for room, of all and of one client. Each takes up to 20 KiB. A further one is refused.
const MOST_WAITING: usize = 1024;
const MOST_WAITING_OF_CLIENT: usize = 256;

/// A client that has more than this part has much.
const LITTLE: usize = 16;

// === impl Places ===

impl Places {
    /// `most`: the places.
    pub(super) fn new(most: usize, ledger: Ledger) -> Arc<Self> {
        Arc::new(Self { most, ledger, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place. `is_long`: the request lasts as long as its client wants.
    ///
    /// # Errors
    /// There is none for this client.
    pub(super) fn take(self: &Arc<Self>, client: &Client, is_long: bool) -> Result<Place, Lack> {
        let mut taken = self.taken.lock();
        let own = taken.of(client).requests;
        let room = room(self.most, own, taken.others(client), is_long);
        room.check(own, taken.all.requests, 1)?;
        taken.change(client, |share| share.requests += 1);
        Ok(Place { places: Arc::clone(self), client: client.clone() })
    }

    /// Whether the client has much of the places, or of the memory.
    pub(super) fn has_much(&self, client: &Client) -> bool {
        let share = self.taken.lock().of(client);
        share.requests > self.most / LITTLE || share.bytes > self.ledger.limit() / LITTLE
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken.lock().all.requests == 0
    }

    /// Takes a place among those that wait. `None` if too many do. `is_own`: for room in the share of the client. A quarter is
    /// for those who wait because of others.
    pub(super) fn wait<'a>(&'a self, client: &'a Client, is_own: bool) -> Option<Waiting<'a>> {
        let most = if is_own { MOST_WAITING / 4 * 3 } else { MOST_WAITING };
        let mut taken = self.taken.lock();
        if taken.all.waiting >= most || taken.of(client).waiting >= MOST_WAITING_OF_CLIENT {
            return None;
        }
        taken.change(client, |share| share.waiting += 1);
        Some(Waiting { places: self, client })
    }

    /// Reserves the memory of an answer.
    ///
    /// # Errors
    /// There is not enough room for this client, or memory is short.
    pub(super) fn hold(self: &Arc<Self>, client: &Client, is_long: bool, bytes: usize) -> Result<Held, Lack> {
        let mut taken = self.taken.lock();
        let own = taken.of(client).bytes;
        let room = room(self.ledger.limit(), own, taken.others(client), is_long);
        // One request always has room in the share of its client.
        if own > 0 {
            room.check(own, taken.all.bytes, bytes)?;
        }
        taken.change(client, |share| share.bytes += bytes);
        // The ledger may have to measure the process.
        drop(taken);
        let is_lasting = is_long || !room.has_little;
        let mut reserved = if is_lasting { self.ledger.nothing() } else { self.ledger.needed() };
        let charged = if is_long { reserved.charge(client.with_share()) } else { Ok(()) };
        let Err(short) = charged.and_then(|()| reserved.try_grow(bytes)) else {
            return Ok(Held { places: Arc::clone(self), client: client.clone(), reserved });
        };
        self.taken.lock().change(client, |share| share.bytes -= bytes);
        // Nobody else makes room for a client that has its share, or much, here or elsewhere.
        let lack = if short.of == Lack::All && !room.has_little { Lack::Much } else { short.of };
        if lack == Lack::All {
            self.ledger.ask_for_room();
        }
        Err(lack)
    }
}

// === impl TakenPlaces ===

impl TakenPlaces {
    fn of(&self, client: &Client) -> Share {
        self.by_client.get(client).copied().unwrap_or_default()
    }

    /// Changes what a client has, and what all have. A client that has nothing is forgotten.
    fn change(&mut self, client: &Client, change: impl Fn(&mut Share)) {
        change(&mut self.all);
        let share = self.by_client.entry(client.clone()).or_default();
        change(share);
        if *share == Share::default() {
            self.by_client.remove(client);
        }
    }

    /// Whether other clients have something, too.
    fn others(&self, client: &Client) -> bool {
        self.by_client.len() > usize::from(self.by_client.contains_key(client))
    }
}

/// How much there is for a request.
struct Room {
    of_client: usize,
    of_all: usize,
    has_little: bool,
}

/// `own`: what its client has. `others`: other clients have something, too.
fn room(most: usize, own: usize, others: bool, is_long: bool) -> Room {
    let of_much = most - most / 8 * 3;
    let of_client = match (is_long, others) {
        (true, _) => most.div_ceil(8) * 3,
        (false, true) => most.div_ceil(2),
        (false, false) => of_much,
    };
    let has_little = own <= most / LITTLE;
    let of_all = match (has_little, is_long) {
        (true, false) => most,
        (true, true) => most - most / 4,
        (false, _) => of_much,
    };
    Room { of_client, of_all, has_little }
}

// === impl Room ===

impl Room {
    /// `own`: what the client has. `all`: what all have. `more`: what the request needs.
    fn check(&self, own: usize, all: usize, more: usize) -> Result<(), Lack> {
        if own.saturating_add(more) > self.of_client {
            return Err(Lack::Share);
        }
        match all.saturating_add(more) > self.of_all {
            true if self.has_little => Err(Lack::All),
            true => Err(Lack::Much),
            false => Ok(()),
        }
    }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.lock().change(&self.client, |share| share.requests -= 1);
        self.places.freed.notify_one();
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.places.taken.lock().change(self.client, |share| share.waiting -= 1);
    }
}

// === impl Held ===

impl Drop for Held {
    fn drop(&mut self) {
        self.places.taken.lock().change(&self.client, |share| share.bytes -= self.reserved.bytes());
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pressure;

    fn take(places: &Arc<Places>, client: u64, is_long: bool) -> Vec<Place> {
        std::iter::from_fn(|| places.take(&Client::Connection(client), is_long).ok()).take(1000).collect()
    }

    fn refused(places: &Arc<Places>, client: u64, is_long: bool) -> Option<Lack> {
        places.take(&Client::Connection(client), is_long).err()
    }

    #[test]
    fn nobody_takes_all_places() {
        let places = Places::new(160, Ledger::default());
        let alone = take(&places, 1, false);
        assert_eq!((alone.len(), refused(&places, 1, false)), (100, Some(Lack::Share)));
        let waits = take(&places, 11, true);
        assert_eq!((waits.len(), refused(&places, 11, true)), (11, Some(Lack::Much)), "an eighth for who has little");
        let others: Vec<_> = (2..10).map(|client| take(&places, client, false)).collect();
        let lengths: Vec<_> = others.iter().map(Vec::len).collect();
        assert_eq!(lengths, [11, 11, 11, 11, 5, 0, 0, 0], "who has little may take of the last quarter");
        assert_eq!((refused(&places, 1, false), refused(&places, 12, false)), (Some(Lack::Share), Some(Lack::All)));
        assert!(places.has_much(&Client::Connection(1)) && !places.has_much(&Client::Connection(6)));
        drop((alone, waits, others));
        assert!(places.taken.lock().by_client.is_empty());
        assert_eq!(places.taken.lock().all.requests, 0);
    }

    #[test]
    fn few_wait_for_room() {
        let places = Places::new(160, Ledger::default());
        let clients: Vec<_> = (0..6).map(Client::Connection).collect();
        let mut waiting = Vec::new();
        for client in &clients {
            waiting.extend(std::iter::from_fn(|| places.wait(client, true)));
        }
        assert_eq!(waiting.len(), MOST_WAITING / 4 * 3);
        waiting.extend(std::iter::from_fn(|| places.wait(&clients[5], false)));
        assert_eq!(waiting.len(), MOST_WAITING);
        waiting.truncate(MOST_WAITING_OF_CLIENT);
        assert!(places.wait(&clients[0], false).is_none());
        assert!(places.wait(&clients[5], true).is_some());
        drop(waiting);
        assert!(places.taken.lock().by_client.is_empty());
    }

    #[test]
    fn what_lasts_is_not_for_the_first_who_comes() {
        let places = Places::new(160, Ledger::default());
        let [first, second] = [1, 2].map(|client| take(&places, client, true));
        assert_eq!((first.len(), second.len()), (60, 40), "three eighths, and five eighths for those who have much");
        assert_eq!((refused(&places, 1, true), refused(&places, 2, true)), (Some(Lack::Share), Some(Lack::Much)));
        let others: Vec<_> = (3..6).map(|client| take(&places, client, true).len()).collect();
        assert_eq!(others, [11; 3], "who has little");
        let kept: Vec<_> = (3..6).map(|client| take(&places, client, true)).collect();
        assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), [11, 9, 0]);
        assert_eq!(refused(&places, 5, true), Some(Lack::All));
        assert_eq!(take(&places, 5, false).len(), 11, "what lasts leaves a quarter, whoever asks");
    }

    #[test]
    fn however_few_places_there_are_who_has_none_gets_one() {
        for most in [1, 2, 3, 7] {
            let places = Places::new(most, Ledger::default());
            assert!(!take(&places, 1, true).is_empty() && !take(&places, 1, false).is_empty(), "{most}");
        }
    }

    #[test]
    fn nobody_takes_all_memory() {
        let ledger = Ledger::new(1600, Pressure::default());
        let places = Places::new(1000, ledger.clone());
        let hold = |client: u64, is_long| -> Vec<_> {
            let client = Client::Connection(client);
            std::iter::from_fn(|| places.hold(&client, is_long, 50).ok()).take(1000).collect()
        };
        let much = hold(1, false);
        assert_eq!((much.len(), ledger.used()), (20, 1000));
        assert_eq!(hold(2, true).len(), 3, "who has little");
        assert_eq!(places.hold(&Client::Connection(1), false, 50).err(), Some(Lack::Share));
        let little = hold(2, false);
        assert_eq!(little.len(), 3);
        assert!(places.hold(&Client::Connection(3), false, 450).is_ok(), "one request has room");
        assert_eq!(places.hold(&Client::Connection(3), false, 500).err(), Some(Lack::All));
        assert_eq!(ledger.refused(), 0, "it may try again");
        drop(much);
        assert_eq!(hold(1, false).len(), 16, "half of it beside another client");
        drop(little);
        assert_eq!(hold(1, true).len(), 12, "three eighths of what lasts");
        assert_eq!(ledger.used(), 0);
        assert!(places.taken.lock().by_client.is_empty());
        assert!(places.hold(&Client::Connection(1), false, 1600).is_ok(), "however large");
    }

    #[test]
    fn what_lasts_counts_with_all_else_that_the_client_keeps() {
        let ledger = Ledger::new(1600, Pressure::default());
        let places = Places::new(1000, ledger.clone());
        let [first, second, third] = [1_u8, 2, 3].map(|n| Client::Address([10, 0, 0, n].into()));
        let elsewhere = ledger.lasting(550).unwrap();
        elsewhere.charge(first.with_share()).unwrap();
        let watch = places.hold(&first, true, 50).unwrap();
        assert_eq!(places.hold(&first, true, 50).err(), Some(Lack::Share));
        assert!(places.hold(&first, false, 50).is_ok(), "what ends by itself");
        let others: Vec<_> = std::iter::from_fn(|| places.hold(&second, true, 50).ok()).collect();
        assert_eq!((others.len(), ledger.used()), (8, 1000));
        assert!(places.hold(&third, true, 50).is_ok(), "it has little");
        drop((elsewhere, watch, others));
        assert_eq!(ledger.used(), 0);
    }

    #[tokio::test]
    async fn who_waits_learns_of_a_place_that_was_given_back() {
        let places = Places::new(1, Ledger::default());
        let place = places.take(&Client::Connection(1), true).unwrap();
        assert_eq!(places.take(&Client::Connection(2), false).err(), Some(Lack::All));
        drop(place);
        tokio::time::timeout(std::time::Duration::from_secs(5), places.freed.notified()).await.unwrap();
        assert!(places.take(&Client::Connection(2), false).is_ok());
    }
}
