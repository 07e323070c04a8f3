//! Admission control of connections: limits their number, of all clients, of those on delegated listeners, and of a
//! single address among these.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::config::ListenAddr;
use crate::auth::Mode;
use crate::http::record::HttpMetrics;
use crate::lifecycle::slots::{Slot, Slots, group};
use crate::telemetry::gauge::Raised;

/// The places of a process's listeners. If there are listeners of both kinds, a quarter of all places is reserved for
/// clients of trusted listeners, because anyone who can connect to a delegated listener can take places there. One
/// address, or one /64 of IPv6, may take half of the places for delegated listeners. If there are slots, trusted listeners
/// have these instead: everybody reaches them, and nobody keeps others out.
#[derive(Debug)]
pub(in crate::http) struct Places {
    all: Arc<Semaphore>,
    delegated: Arc<Semaphore>,
    per_address: usize,
    slots: Option<Arc<Slots>>,
    /// Connections of delegated listeners. There is an entry for each address that has a connection.
    by_address: Mutex<HashMap<IpAddr, usize>>,
    metrics: Arc<HttpMetrics>,
}

/// Counts a connection for as long as the connection lives.
#[derive(Debug)]
pub(in crate::http) struct Place {
    /// Another connection may take it.
    pub(super) slot: Option<Slot>,
    _all: Option<OwnedSemaphorePermit>,
    _delegated: Option<(OwnedSemaphorePermit, OfAddress)>,
    _open: Raised,
}

#[derive(Debug)]
struct OfAddress {
    places: Arc<Places>,
    address: IpAddr,
}

// === impl Places ===

impl Places {
    pub(in crate::http) fn new<'l>(
        most: usize,
        evicts: bool,
        listeners: impl Iterator<Item = &'l ListenAddr>,
        metrics: Arc<HttpMetrics>,
    ) -> Arc<Self> {
        let (trusted, delegated): (Vec<_>, Vec<_>) = listeners.partition(|at| at.mode() == Mode::Trust);
        let both = !trusted.is_empty() && !delegated.is_empty();
        let of_delegated = if both { (most - most / 4).max(1) } else { most };
        Arc::new(Self {
            all: Arc::new(Semaphore::new(most)),
            delegated: Arc::new(Semaphore::new(of_delegated)),
            per_address: of_delegated.div_ceil(2),
            slots: evicts.then(|| Slots::new(most, metrics.connections_refused.clone())),
            by_address: Mutex::default(),
            metrics,
        })
    }

    /// Takes a place for a connection, if there is one.
    pub(in crate::http) fn take(self: &Arc<Self>, listener: &ListenAddr, address: Option<IpAddr>) -> Option<Place> {
        let open = || Raised::new(&self.metrics.connections_open);
        if let (Mode::Trust, Some(address), Some(slots)) = (listener.mode(), address, &self.slots) {
            return Some(Place { slot: Some(slots.take(address)), _all: None, _delegated: None, _open: open() });
        }
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        let delegated = match (listener.mode(), address) {
            (Mode::Delegated, Some(address)) => {
                let permit = Arc::clone(&self.delegated).try_acquire_owned().ok()?;
                let address = group(address);
                let mut by_address = self.by_address.lock();
                let count = by_address.entry(address).or_default();
                if *count >= self.per_address {
                    return None;
                }
                *count += 1;
                Some((permit, OfAddress { places: Arc::clone(self), address }))
            }
            _ => None,
        };
        Some(Place { slot: None, _all: Some(all), _delegated: delegated, _open: open() })
    }
}

// === impl OfAddress ===

impl Drop for OfAddress {
    fn drop(&mut self) {
        let mut by_address = self.places.by_address.lock();
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trusted_listeners_have_a_reserve_and_no_address_takes_all() {
        let listeners: Vec<ListenAddr> =
            ["http://127.0.0.1:1", "delegated+https://127.0.0.1:2"].map(|at| at.parse().unwrap()).into();
        let places = Places::new(16, false, listeners.iter(), Arc::default());
        let (trusted, delegated) = (&listeners[0], &listeners[1]);
        let address = |n: u8| Some(IpAddr::from([10, 0, 0, n]));
        let first: Vec<_> = std::iter::from_fn(|| places.take(delegated, address(1))).take(100).collect();
        assert_eq!(first.len(), 6, "half of the places for delegated listeners");
        let second: Vec<_> = (0..100).filter_map(|n| places.take(delegated, address(2 + n % 50))).collect();
        assert_eq!(second.len(), 6, "the other half");
        let own: Vec<_> = std::iter::from_fn(|| places.take(trusted, address(1))).take(100).collect();
        assert_eq!(own.len(), 4, "a quarter of all");
        drop((first, second));
        assert!(places.by_address.lock().is_empty());
        let all: Vec<_> = std::iter::from_fn(|| places.take(trusted, None)).take(100).collect();
        assert_eq!(all.len(), 12, "whoever is trusted may take all");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_together() {
        let delegated: ListenAddr = "delegated+https://[::1]:2".parse().unwrap();
        let places = Places::new(16, false, [&delegated].into_iter(), Arc::default());
        let address = |network, host| Some(IpAddr::from([0xfd00, 0, 0, network, 0, 0, 0, host]));
        let taken = |network: u16| -> Vec<_> {
            (1..20).filter_map(|host| places.take(&delegated, address(network, host))).collect()
        };
        let (first, second) = (taken(1), taken(2));
        assert_eq!((first.len(), second.len()), (8, 8));
        drop((first, second));
        assert!(places.by_address.lock().is_empty());
    }
}
