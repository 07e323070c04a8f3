//! What the requests to the apiserver that are under way may take together: places, and memory for their answers. Nobody
//! takes all of it.
//!
//! A client takes half, or three quarters while it is alone. The last quarter is for short requests of clients that have
//! little. It is not for requests that last as long as their client wants.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::auth::Payer;
use crate::memory::{Ledger, Reservation, Short};

/// Who takes what a request needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Its credentials were accepted.
    User(Payer),
    /// It may be anybody.
    Address(IpAddr),
    /// It is trusted. Its address says little: the containers of a pod have the same, and a Unix socket has none.
    Connection(u64),
}

/// The places of all requests, and the memory of their answers.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    ledger: Ledger,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    requests: usize,
    by_client: HashMap<Client, Share>,
}

#[derive(Debug, Default)]
struct Share {
    requests: usize,
    bytes: usize,
}

/// The place of a request, until the apiserver's answer is read.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: Client,
}

/// The memory of an answer, until its client has taken it.
#[derive(Debug)]
pub(super) struct Held {
    places: Arc<Places>,
    client: Client,
    reserved: Reservation,
}

/// A client that has more than this part has much.
const LITTLE: usize = 16;

// === impl Places ===

impl Places {
    /// `most`: the places.
    pub(super) fn new(most: usize, ledger: Ledger) -> Arc<Self> {
        Arc::new(Self { most, ledger, taken: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place. `is_long`: the request lasts as long as its client wants.
    pub(super) fn take(self: &Arc<Self>, client: &Client, is_long: bool) -> Option<Place> {
        let mut taken = self.taken.lock();
        let own = taken.by_client.get(client).map_or(0, |share| share.requests);
        let room = room(self.most, own, taken.others(client), is_long);
        if own >= room.of_client || taken.requests >= room.of_all {
            return None;
        }
        taken.requests += 1;
        taken.by_client.entry(client.clone()).or_default().requests += 1;
        Some(Place { places: Arc::clone(self), client: client.clone() })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken.lock().requests == 0
    }

    /// Waits until a place was given back. There may be none left by then.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Reserves the memory of an answer.
    ///
    /// # Errors
    /// There is not enough room, or memory is short.
    pub(super) fn hold(self: &Arc<Self>, client: &Client, is_long: bool, bytes: usize) -> Result<Held, Short> {
        let mut taken = self.taken.lock();
        let own = taken.by_client.get(client).map_or(0, |share| share.bytes);
        let room = room(self.ledger.limit(), own, taken.others(client), is_long);
        // One request always has room.
        if own > 0 && own.saturating_add(bytes) > room.of_client {
            self.ledger.note_refused();
            return Err(Short { need: bytes });
        }
        taken.by_client.entry(client.clone()).or_default().bytes += bytes;
        // The ledger may have to measure the process.
        drop(taken);
        let reserve = if room.of_all < self.ledger.limit() { Ledger::lasting } else { Ledger::reserve };
        match reserve(&self.ledger, bytes) {
            Ok(reserved) => Ok(Held { places: Arc::clone(self), client: client.clone(), reserved }),
            Err(short) => {
                self.give_back(client, 0, bytes);
                Err(short)
            }
        }
    }

    fn give_back(&self, client: &Client, requests: usize, bytes: usize) {
        let mut taken = self.taken.lock();
        taken.requests -= requests;
        if let Some(share) = taken.by_client.get_mut(client) {
            share.requests -= requests;
            share.bytes -= bytes;
            if share.requests == 0 && share.bytes == 0 {
                taken.by_client.remove(client);
            }
        }
    }
}

// === impl Taken ===

impl Taken {
    /// Whether other clients have something, too.
    fn others(&self, client: &Client) -> bool {
        self.by_client.len() > usize::from(self.by_client.contains_key(client))
    }
}

/// How much there is for a request.
struct Room {
    of_client: usize,
    of_all: usize,
}

/// `own`: what its client has. `others`: other clients have something, too.
fn room(most: usize, own: usize, others: bool, is_long: bool) -> Room {
    let but_a_quarter = most - most / 4;
    let of_client = if others { most.div_ceil(2) } else { but_a_quarter };
    let has_little = own <= most / LITTLE;
    Room { of_client, of_all: if has_little && !is_long { most } else { but_a_quarter } }
}

// === impl Place ===

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(&self.client, 1, 0);
        self.places.freed.notify_one();
    }
}

// === impl Held ===

impl Drop for Held {
    fn drop(&mut self) {
        self.places.give_back(&self.client, 0, self.reserved.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pressure;

    fn take(places: &Arc<Places>, client: u64, is_long: bool) -> Vec<Place> {
        std::iter::from_fn(|| places.take(&Client::Connection(client), is_long)).take(1000).collect()
    }

    #[test]
    fn nobody_takes_all_places() {
        let places = Places::new(160, Ledger::default());
        let alone = take(&places, 1, false);
        assert_eq!(alone.len(), 120, "all but a quarter");
        let others: Vec<_> = (2..10).map(|client| take(&places, client, false).len()).collect();
        assert_eq!(others, [11; 8], "who has little may take of the last quarter");
        assert!(take(&places, 2, true).is_empty(), "what lasts may not");
        drop(alone);
        let first = take(&places, 1, true);
        let second = take(&places, 2, true);
        assert_eq!((first.len(), second.len()), (120, 0), "what lasts leaves a quarter, whoever asks");
        let kept: Vec<_> = first.into_iter().take(10).collect();
        assert_eq!((take(&places, 2, true).len(), kept.len()), (80, 10), "half of them beside another client");
        drop(kept);
        assert!(places.taken.lock().by_client.is_empty());
        assert_eq!(places.taken.lock().requests, 0);
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
        assert_eq!((much.len(), ledger.used()), (24, 1200));
        assert_eq!(hold(2, true).len(), 0, "what lasts leaves a quarter");
        let little = hold(2, false);
        assert_eq!(little.len(), 3);
        assert!(places.hold(&Client::Connection(3), false, 250).is_ok(), "one request has room");
        drop(much);
        assert_eq!(hold(1, false).len(), 16, "half of it beside another client");
        drop(little);
        assert_eq!(ledger.used(), 0);
        assert!(places.taken.lock().by_client.is_empty());
        assert!(places.hold(&Client::Connection(1), false, 1600).is_ok(), "however large");
    }

    #[tokio::test]
    async fn who_waits_learns_of_a_place_that_was_given_back() {
        let places = Places::new(1, Ledger::default());
        let place = places.take(&Client::Connection(1), true).unwrap();
        assert!(places.take(&Client::Connection(2), false).is_none());
        drop(place);
        tokio::time::timeout(std::time::Duration::from_secs(5), places.freed()).await.unwrap();
        assert!(places.take(&Client::Connection(2), false).is_some());
    }
}
