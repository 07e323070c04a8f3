//! Finds out whether the client of an HTTP/2 connection is still there.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

/// Sends a PING now and then.
pub(super) struct KeepAlive {
    pings: PingPong,
    /// When the next PING is due, or its answer.
    next: Pin<Box<Sleep>>,
    is_sent: bool,
}

const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl KeepAlive ===

impl KeepAlive {
    pub(super) fn new(pings: PingPong) -> Self {
        Self { pings, next: Box::pin(sleep_until(Instant::now() + INTERVAL)), is_sent: false }
    }

    /// Ready if the client has not answered in time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.is_sent && self.pings.poll_pong(cx).is_ready() {
                self.is_sent = false;
                self.next.as_mut().reset(Instant::now() + INTERVAL);
            }
            if self.next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if self.is_sent {
                return Poll::Ready(());
            }
            // It fails if the connection does, which notices that itself.
            self.is_sent = self.pings.send_ping(Ping::opaque()).is_ok();
            self.next.as_mut().reset(Instant::now() + if self.is_sent { TIMEOUT } else { INTERVAL });
        }
    }
}
