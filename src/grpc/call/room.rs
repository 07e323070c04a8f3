//! Limits the size of messages. The part that a client does not read stays in memory for as long as the client
//! stalls.

use super::status::Error;
use crate::memory::{Ledger, Reservation};

/// The memory for the messages of one list. A small message has a reservation for the whole list, so a list that has
/// started can continue. A large message is built only while memory is plentiful.
#[derive(Debug)]
pub(in crate::grpc) struct Room {
    ledger: Ledger,
    _small: Reservation,
    large: Option<Reservation>,
}

/// The maximum size of a message in bytes while memory is not plentiful.
pub(in crate::grpc) const SMALL: usize = 64 << 10;

// === impl Room ===

impl Room {
    /// `held` is the memory that the request itself needs for as long as the list runs.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: memory is short.
    pub(in crate::grpc) fn of_list(ledger: &Ledger, held: Reservation) -> Result<Self, Error> {
        let mut small = held;
        small.grow(SMALL).map_err(|_| Error::no_memory("there is no memory for one more list"))?;
        Ok(Self { ledger: ledger.clone(), _small: small, large: None })
    }

    /// The maximum size in bytes of the next message: `large`, or less. The message before it is already dropped or
    /// will be soon.
    pub(in crate::grpc) fn next(&mut self, large: usize) -> usize {
        self.large = None;
        self.large = self.ledger.spare(large).ok();
        if self.large.is_some() { large } else { SMALL }
    }

    /// Reserves memory for a message with one object that is larger than [`Self::next`] granted.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: memory is short.
    pub(in crate::grpc) fn exceed(&mut self, bytes: usize) -> Result<(), Error> {
        self.large = None;
        self.large = Some(reserve(&self.ledger, bytes)?);
        Ok(())
    }
}

/// Reserves memory for a message that is unusually large because of its object.
///
/// # Errors
/// RESOURCE_EXHAUSTED: memory is short.
pub(in crate::grpc) fn reserve(ledger: &Ledger, bytes: usize) -> Result<Reservation, Error> {
    ledger.reserve(bytes).map_err(|_| Error::no_memory(format!("there is no memory for a message of {bytes} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pressure;

    #[test]
    fn lists_go_on_in_small_messages_and_leave_a_quarter() {
        const MIB: usize = 1 << 20;
        let ledger = Ledger::new(4 * MIB, Pressure::default());
        let mut rooms: Vec<_> =
            std::iter::from_fn(|| Room::of_list(&ledger, ledger.lasting(0).unwrap()).ok()).collect();
        assert_eq!((rooms.len(), ledger.used()), (48, 3 * MIB));
        assert!(ledger.reserve(MIB).is_ok());
        assert_eq!(rooms[0].next(MIB), SMALL);
        rooms.truncate(2);
        assert_eq!([rooms[0].next(MIB), rooms[1].next(MIB)], [MIB, SMALL], "half of the limit is for that");
        assert_eq!([rooms[0].next(MIB), rooms[1].next(MIB)], [MIB, SMALL]);
        rooms[1].exceed(2 * MIB).unwrap();
        assert_eq!(ledger.used(), 3 * MIB + 2 * SMALL);
        assert!(rooms[0].exceed(3 * MIB).is_err());
        assert_eq!(rooms[1].next(MIB), SMALL.max(MIB), "the large one is gone");
        drop(rooms);
        assert_eq!(ledger.used(), 0);
    }
}
