//! How the forwarder knows the client of a connection.

use crate::auth::{Mode, Payer};
use crate::lifecycle::slots::group;
use crate::passthrough::{Client, Sender};

use super::connection::Connection;

// === impl Connection ===

impl Connection {
    /// Tells the connection from all others.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// `payer`: the user of a request, if that is known.
    pub(super) fn sender(&self, payer: Option<Payer>, known: bool, sessions: bool) -> Sender {
        let address = self.peer.map(|peer| peer.ip());
        let client = match (self.listener.mode(), payer, address) {
            (Mode::Delegated, Some(payer), _) => Client::User(payer),
            (Mode::Delegated, None, Some(address)) => Client::Address(group(address)),
            (Mode::Trust, ..) | (Mode::Delegated, None, None) => Client::Connection(self.id),
        };
        Sender { address, known, sessions, client }
    }
}
