//! How the forwarder knows the client of a connection.

use crate::auth::{Mode, Recalled};
use crate::lifecycle::slots::group;
use crate::passthrough::{Client, Sender};

use super::connection::Connection;

// === impl Connection ===

impl Connection {
    /// Tells the connection from all others.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// `token`: of a request, if it is known.
    pub(super) fn sender(&self, token: Option<&Recalled>, known: bool, sessions: bool) -> Sender {
        let address = self.peer.map(|peer| peer.ip());
        let client = match (self.listener.mode(), token, address) {
            (Mode::Delegated, Some(token), _) => Client::User(token.payer.clone()),
            (Mode::Delegated, None, Some(address)) => Client::Address(group(address)),
            (Mode::Trust, ..) | (Mode::Delegated, None, None) => Client::Connection(self.id),
        };
        let accepted = token.is_some_and(|token| token.is_accepted);
        Sender { address, known, accepted, sessions, client }
    }
}
