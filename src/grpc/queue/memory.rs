//! The account of what a group holds and no cache does.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::memory::{Ledger, Level, Pressure, Reservation};
use crate::workqueue::Full;

/// The memory of a group: the last states of deleted objects, and objects that their cache has given up.
#[derive(Debug)]
pub(super) struct GroupMemory {
    held: Mutex<GroupBytes>,
    /// The limit in bytes, so that one group leaves room for others.
    share: usize,
    /// What all groups of the user hold together.
    of_owner: Arc<AtomicUsize>,
    pressure: Pressure,
}

#[derive(Debug)]
struct GroupBytes {
    bytes: usize,
    reservation: Reservation,
}

/// The groups of one user may hold this part of the memory for all answers. The service accounts of a namespace count as one.
const SHARE: usize = 8;
/// The limit in bytes while memory is short.
const SHORT_BYTES: usize = 1 << 20;
/// A group that holds no more bytes than this goes on without a reservation.
const LITTLE: usize = 16 << 10;

// === impl GroupMemory ===

impl GroupMemory {
    /// `beside`: the account of another group of the same user.
    pub(super) fn new(ledger: &Ledger, beside: Option<&Self>) -> Self {
        let held = Mutex::new(GroupBytes { bytes: 0, reservation: ledger.nothing() });
        let of_owner = beside.map(|beside| Arc::clone(&beside.of_owner)).unwrap_or_default();
        Self { held, share: ledger.limit() / SHARE, of_owner, pressure: ledger.pressure().clone() }
    }

    /// A selection of the group has held `before` bytes, and holds `now`.
    ///
    /// # Errors
    /// The group must end: it holds more than its share, or more than there is memory for.
    pub(super) fn change(&self, before: usize, now: usize) -> Result<(), Full> {
        if before == now {
            return Ok(());
        }
        let mut held = self.held.lock();
        held.bytes = held.bytes + now - before;
        // Wraps around where it becomes less.
        let of_owner =
            self.of_owner.fetch_add(now.wrapping_sub(before), Ordering::Relaxed).wrapping_add(now.wrapping_sub(before));
        if now > before && of_owner > self.share && held.bytes > LITTLE {
            return Err(Full::Memory(held.bytes));
        }
        let (needs, has) = (held.bytes, held.reservation.bytes());
        held.reservation.shrink(has.saturating_sub(needs));
        let more = needs.saturating_sub(has);
        if more > 0 && needs <= self.share {
            // `check` sees whether it has the memory.
            let _grown = if needs <= LITTLE { held.reservation.try_grow(more) } else { held.reservation.grow(more) };
        }
        self.check(&held)
    }

    /// Waits until memory is so short that the group must end.
    pub(super) async fn runs_short(&self) -> Full {
        let mut levels = self.pressure.changes();
        loop {
            let checked = self.check(&self.held.lock());
            if let Err(full) = checked {
                return full;
            }
            // The sender lives as long as `self`.
            if levels.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    fn check(&self, held: &GroupBytes) -> Result<(), Full> {
        let lacks_memory = held.bytes > held.reservation.bytes().max(LITTLE);
        let is_short = self.pressure.level() == Level::Short && held.bytes > SHORT_BYTES;
        if lacks_memory || is_short { Err(Full::Memory(held.bytes)) } else { Ok(()) }
    }
}

impl Drop for GroupMemory {
    fn drop(&mut self) {
        self.of_owner.fetch_sub(self.held.get_mut().bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_an_owner_have_an_eighth_together() {
        let ledger = Ledger::new(8 << 20, Pressure::default());
        let (a, other) = (GroupMemory::new(&ledger, None), GroupMemory::new(&ledger, None));
        let b = GroupMemory::new(&ledger, Some(&a));
        a.change(0, ledger.limit() / SHARE).unwrap();
        b.change(0, LITTLE).unwrap();
        assert!(b.change(LITTLE, LITTLE + 1).is_err());
        other.change(0, 1 << 20).unwrap();
        drop(b);
        let c = GroupMemory::new(&ledger, Some(&a));
        a.change(1 << 20, 1 << 19).unwrap();
        c.change(0, 1 << 19).unwrap();
        assert!(c.change(1 << 19, (1 << 19) + 1).is_err());
    }
}
