#![doc = include_str!("../README.md")]

mod cache;
mod error;
mod find;
mod follower;
mod outage;
mod queue;
mod retry;
mod selection;
mod server;
mod watch;

use std::sync::Arc;

pub use cache::{Cache, Feed};
pub use error::Error;
pub use find::Find;
pub use follower::{Event, Key};
pub use queue::{Item, Outcome, Queue};
pub use selection::Selected;
pub use server::Server;

use outage::Outage;

/// The stubs of `informerd.v1`, for calls that this crate does not make, and for servers in tests. [`Server::channel`]
/// connects them, and [`Server::authorize`] adds the token.
pub mod v1 {
    #![allow(clippy::all, clippy::pedantic, clippy::restriction, missing_docs, reason = "generated")]

    include!("generated/informerd.v1.rs");
}

/// Watches, caches and queues of one informerd. Clones share what is told of its outages.
#[derive(Clone, Debug)]
pub struct Client {
    server: Server,
    unreachable: Arc<Outage>,
}

// === impl Client ===

impl Client {
    #[must_use]
    pub fn new(server: Server) -> Self {
        let what = format!("informerd at {}", server.address());
        Self { server, unreachable: Arc::new(Outage::new(what, "does not answer", "answers again")) }
    }

    /// A client of the informerd that [`Find::default`] finds.
    ///
    /// # Errors
    /// A variable is wrong.
    pub async fn find() -> Result<Self, Error> {
        Ok(Self::new(Find::default().server().await?))
    }

    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }
}
