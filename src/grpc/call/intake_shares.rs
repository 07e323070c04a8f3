//! What the requests of one client may take of the memory for answers. A stream needs no right to be open and lasts as long
//! as its client wants, so one client could hold all memory that there is for requests.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::lasting::Client;
use super::status::Error;
use crate::grpc::metrics::GrpcMetrics;
use crate::memory::Ledger;

/// What the requests of all clients take.
#[derive(Debug)]
pub(in crate::grpc) struct IntakeShares {
    /// The bytes that one client may take.
    most: usize,
    /// There is an entry for each client that has some.
    taken: Mutex<HashMap<Client, usize>>,
    metrics: Arc<GrpcMetrics>,
}

/// What an account of a call takes of its client's share, until this is dropped.
#[derive(Debug)]
pub(in crate::grpc) struct IntakeShare {
    shares: Arc<IntakeShares>,
    client: Client,
    /// What is kept of the call's head, in bytes. It has a reservation of its own.
    head: usize,
    has: usize,
}

/// A client may take so many eighths of the memory for answers. That is half of what is there for requests.
const SHARE: usize = 3;

// === impl IntakeShares ===

impl IntakeShares {
    pub(in crate::grpc) fn new(ledger: &Ledger, metrics: Arc<GrpcMetrics>) -> Arc<Self> {
        Arc::new(Self { most: ledger.limit() / 8 * SHARE, taken: Mutex::default(), metrics })
    }

    /// The share of a new call. `head`: what is kept of the call's head, in bytes. `None` for a client that is trusted: its
    /// connection may carry the calls of a whole pod.
    pub(in crate::grpc) fn of(self: &Arc<Self>, client: Client, head: usize) -> Option<IntakeShare> {
        if matches!(client, Client::Connection(_)) {
            return None;
        }
        Some(IntakeShare { shares: Arc::clone(self), client, head, has: 0 })
    }

    /// An account of this client has so many bytes, and needs so many.
    fn change(&self, client: &Client, has: usize, needs: usize) -> Result<(), Error> {
        if needs == has {
            return Ok(());
        }
        let mut taken = self.taken.lock();
        let own = taken.get(client).map_or(0, |own| *own) - has + needs;
        if needs > has && own > self.most {
            self.metrics.overflows.inc();
            return Err(Error::too_many("the requests of the client take as much memory as they may"));
        }
        if own == 0 {
            taken.remove(client);
        } else if let Some(bytes) = taken.get_mut(client) {
            *bytes = own;
        } else {
            taken.insert(client.clone(), own);
        }
        Ok(())
    }
}

// === impl IntakeShare ===

impl IntakeShare {
    /// For another account of the same call.
    pub(super) fn another(&self) -> Self {
        Self { shares: Arc::clone(&self.shares), client: self.client.clone(), head: 0, has: 0 }
    }

    /// The requests of the account take so many bytes from now on. Fewer than before are never refused.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED: the client would have more than it may. The account stays as it was.
    pub(super) fn set(&mut self, bytes: usize) -> Result<(), Error> {
        let needs = self.head + bytes;
        self.shares.change(&self.client, self.has, needs)?;
        self.has = needs;
        Ok(())
    }
}

impl Drop for IntakeShare {
    fn drop(&mut self) {
        // This releases memory, so it cannot fail.
        self.shares.change(&self.client, self.has, 0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Payer, UserInfo};
    use crate::grpc::call::Intake;
    use crate::memory::Pressure;

    const MIB: usize = 1 << 20;

    fn user(name: &str) -> Client {
        Client::User(Payer::of(&UserInfo { username: name.to_owned(), ..UserInfo::default() }))
    }

    #[test]
    fn requests_of_one_client_take_their_share_and_those_of_others_go_on() {
        let ledger = Ledger::new(16 * MIB, Pressure::default());
        let metrics = Arc::<GrpcMetrics>::default();
        let shares = IntakeShares::new(&ledger, Arc::clone(&metrics));
        let open = |client: Client, head: usize| -> Vec<_> {
            let next = || Intake::new(&ledger, shares.of(client.clone(), head), "/informerd.v1.Objects/Sync", true);
            std::iter::from_fn(|| next().ok()).take(1000).collect()
        };
        assert_eq!(open(Client::Connection(1), 0).len(), 768, "who is trusted takes all that is there for requests");
        assert_eq!((metrics.overflows.get(), ledger.refused()), (0, 1));
        let first = open(user("a"), 0);
        assert_eq!((first.len(), ledger.used()), (384, 6 * MIB), "three eighths");
        assert_eq!((metrics.overflows.get(), ledger.refused()), (1, 1), "others need not make room");
        assert_eq!(open(user("b"), 16 << 10).len(), 192, "what is kept of heads counts, too");
        assert_eq!(open(Client::Address([10, 0, 0, 1].into()), 0).len(), 384);
        drop(first);
        assert!(shares.taken.lock().is_empty());
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn a_share_counts_what_is_reserved() {
        let ledger = Ledger::new(16 * MIB, Pressure::default());
        let shares = IntakeShares::new(&ledger, Arc::default());
        let taken = || shares.taken.lock().get(&user("a")).copied();
        // A message of a method that is not in the API counts as its bytes.
        let intake = Intake::new(&ledger, shares.of(user("a"), 0), "/other", false).unwrap();
        let place = ledger.used();
        intake.decode(&vec![0; MIB]).unwrap();
        let apart = intake.of_message(&ledger).unwrap();
        assert_eq!((taken(), ledger.used()), (Some(MIB + place), MIB + place));
        let rest = ledger.reserve(10 * MIB).unwrap();
        assert!(intake.decode(&vec![0; 2 * MIB]).is_err(), "there is no memory");
        assert_eq!((taken(), ledger.used()), (Some(MIB + place), 11 * MIB + place));
        drop(rest);
        assert!(intake.decode(&vec![0; 5 * MIB + 1]).is_err(), "six mebibytes are its share");
        assert_eq!((taken(), ledger.used()), (Some(MIB + place), MIB + place));
        intake.decode(&vec![0; 5 * MIB]).unwrap();
        assert_eq!((taken(), ledger.used()), (Some(6 * MIB), 6 * MIB));
        intake.hand_over();
        drop(apart);
        assert_eq!((taken(), ledger.used()), (Some(place), place));
        drop(intake);
        assert_eq!((taken(), ledger.used()), (None, 0));
    }
}
