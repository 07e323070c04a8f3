//! Two upgraded connections as one pipe.

use std::io;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;

use super::observe::Observation;

/// What one direction may have under way.
const BUFFER: usize = 32 << 10;

/// Runs once the 101 is on its way to the client. It has no time limit of its own: a session may stand still for hours.
#[must_use = "the session starts when it is run"]
#[derive(Debug)]
pub struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    /// A watch over a WebSocket shows revisions.
    pub(super) _observation: Option<Observation>,
}

// === impl Tunnel ===

impl Tunnel {
    /// Copies both ways until both sides are done. When one says that it will send no more, the other is told so and
    /// may go on sending.
    ///
    /// # Errors
    /// One of the connections broke, or was never upgraded.
    pub async fn run(self) -> io::Result<(u64, u64)> {
        let (client, upstream) =
            tokio::try_join!(self.client, self.upstream).map_err(|error| io::Error::other(error.to_string()))?;
        copy_bidirectional_with_sizes(&mut TokioIo::new(client), &mut TokioIo::new(upstream), BUFFER, BUFFER).await
    }
}
