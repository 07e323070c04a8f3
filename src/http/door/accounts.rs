//! The memory of HTTP/2 requests and answers that no other account knows of: requests whose answers have not begun,
//! and small answers that are not taken.
//!
//! It is apart from the memory for answers, so that neither can take the other's. On delegated listeners, an address has a
//! share. On listeners that trust their clients, a connection has one, and all of them have an account of their own.

use std::sync::Arc;

use super::connection::Connection;
use super::open_head::{OpenHead, OpenHeads};
use crate::auth::Mode;
use crate::http::record::HttpMetrics;
use crate::memory::{Ledger, Pressure};

/// The accounts of all connections: one for requests, and one for small answers.
#[derive(Debug)]
pub(in crate::http) struct Accounts {
    trusted: [Arc<OpenHeads>; 2],
    delegated: [Arc<OpenHeads>; 2],
}

// === impl Accounts ===

impl Accounts {
    /// `memory`: what all answers may take. `largest`: the largest head.
    pub(in crate::http) fn new(memory: usize, largest: usize, metrics: &Arc<HttpMetrics>) -> Self {
        let new = || OpenHeads::new(Ledger::new(memory, Pressure::default()), largest, Arc::clone(metrics));
        Self { trusted: [new(), new()], delegated: [new(), new()] }
    }

    /// For the requests of a connection, and for its small answers.
    pub(in crate::http) fn of(&self, connection: &Connection) -> [OpenHead; 2] {
        let address = connection.peer.map(|peer| peer.ip());
        match connection.listener.mode() {
            Mode::Trust => self.trusted.each_ref().map(|heads| heads.of_connection(connection.id)),
            Mode::Delegated => self.delegated.each_ref().map(|heads| heads.of(address)),
        }
    }
}
