//! The slots of connections of which anybody can open many. A new connection always gets a slot. If there is none left,
//! another connection loses its slot, so nobody keeps others out.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub struct Slots {
    most: usize,
    taken: Mutex<TakenSlots>,
    closed: Counter,
}

#[derive(Debug, Default)]
struct TakenSlots {
    /// Counts connections and uses. It orders them in time.
    now: u64,
    by_id: HashMap<u64, Visit>,
}

#[derive(Debug)]
struct Visit {
    address: IpAddr,
    /// The time of the last use, or of the connection itself.
    used: u64,
    close: CancellationToken,
}

/// The slot of a connection, for as long as the connection lives.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    id: u64,
    close: CancellationToken,
}

// === impl Slots ===

impl Slots {
    /// `most` must not be 0. `closed` counts the connections that lose their slots.
    pub fn new(most: usize, closed: Counter) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), closed })
    }

    /// Returns a slot for a new connection. If all are taken, a connection of the address that has the most loses its
    /// slot: the one whose last use is the oldest.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Slot {
        let close = CancellationToken::new();
        let mut taken = self.taken.lock();
        if taken.by_id.len() >= self.most
            && let Some(visit) = taken.in_the_way().and_then(|id| taken.by_id.remove(&id))
        {
            visit.close.cancel();
            self.closed.inc();
        }
        taken.now += 1;
        let id = taken.now;
        taken.by_id.insert(id, Visit { address: group(address), used: id, close: close.clone() });
        Slot { slots: Arc::clone(self), id, close }
    }
}

// === impl TakenSlots ===

impl TakenSlots {
    fn in_the_way(&self) -> Option<u64> {
        let mut of_address = HashMap::<IpAddr, usize>::new();
        for visit in self.by_id.values() {
            *of_address.entry(visit.address).or_default() += 1;
        }
        let order = |visit: &Visit| (Reverse(of_address.get(&visit.address).copied()), visit.used);
        self.by_id.iter().min_by_key(|(_, visit)| order(visit)).map(|(id, _)| *id)
    }
}

// === impl Slot ===

impl Slot {
    /// Makes this slot the one that was used last.
    pub fn used(&self) {
        let mut taken = self.slots.taken.lock();
        taken.now += 1;
        let now = taken.now;
        if let Some(visit) = taken.by_id.get_mut(&self.id) {
            visit.used = now;
        }
    }

    /// Waits until another connection has this slot.
    pub async fn lost(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken.lock().by_id.remove(&self.id);
    }
}

/// The address that a connection counts for. Whoever has one IPv6 address mostly has all of its /64.
pub fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) & (u128::MAX << 64)).to_be_bytes()),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 64;

    #[test]
    fn a_network_counts_as_one_address() {
        let of = |address: &str| group(address.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!((of("10.1.2.3"), of("::ffff:10.1.2.3")), ("10.1.2.3".into(), "10.1.2.3".into()));
    }

    #[test]
    fn the_address_with_the_most_gives_way_and_of_it_whoever_asked_least_lately() {
        let slots = Slots::new(MOST, Counter::default());
        let address = |n: u8| IpAddr::from([10, 0, 0, n]);
        let kubelet = slots.take(address(1));
        let crowd: Vec<_> = (1..MOST).map(|_| slots.take(address(2))).collect();
        crowd[0].used();
        let more: Vec<_> = (3..5).map(|n| slots.take(address(n))).collect();
        let closed: Vec<_> = (0..crowd.len()).filter(|at| crowd[*at].close.is_cancelled()).collect();
        assert_eq!(closed, [1, 2]);
        assert!(!kubelet.close.is_cancelled() && more.iter().all(|slot| !slot.close.is_cancelled()));
        assert_eq!(slots.closed.get(), 2);
        drop(crowd);
        assert_eq!(slots.taken.lock().by_id.len(), 3);
        // Where each has an address of its own, the one that asked most lately stays the longest.
        let crowd: Vec<_> = (100..).take(MOST).map(|n| slots.take(address(n))).collect();
        assert!(kubelet.close.is_cancelled() && more.iter().all(|slot| slot.close.is_cancelled()));
        assert_eq!((slots.taken.lock().by_id.len(), crowd.len()), (MOST, MOST));
    }
}
