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

/// The accounts of all connections.
#[derive(Debug)]
pub(in crate::http) struct Accounts {
    trusted: Account,
    delegated: Account,
}

#[derive(Debug)]
struct Account {
    requests: Arc<OpenHeads>,
    answers: Arc<OpenHeads>,
}

// === impl Accounts ===

impl Accounts {
    /// `memory`: what all answers may take. `largest`: the largest head.
    pub(in crate::http) fn new(memory: usize, largest: usize, metrics: &Arc<HttpMetrics>) -> Self {
        let new = || OpenHeads::new(Ledger::new(memory, Pressure::default()), largest, Arc::clone(metrics));
        let account = || Account { requests: new(), answers: new() };
        Self { trusted: account(), delegated: account() }
    }

    /// For the requests of a connection.
    pub(in crate::http) fn requests(&self, of: &Connection) -> OpenHead {
        self.of(of, |account| &account.requests)
    }

    /// For its small answers.
    pub(in crate::http) fn answers(&self, of: &Connection) -> OpenHead {
        self.of(of, |account| &account.answers)
    }

    fn of(&self, connection: &Connection, which: impl Fn(&Account) -> &Arc<OpenHeads>) -> OpenHead {
        match connection.listener.mode() {
            Mode::Trust => which(&self.trusted).of_connection(connection.id),
            Mode::Delegated => which(&self.delegated).of(connection.peer.map(|peer| peer.ip())),
        }
    }
}
