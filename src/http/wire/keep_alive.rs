//! Finds out whether the client of an HTTP/2 connection is still there.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

/// Sends a PING to a client that has sent nothing for a while.
pub(super) struct KeepAlive {
    pings: PingPong,
    /// When the next PING is due, or something from the client.
    next: Pin<Box<Sleep>>,
    is_sent: bool,
    /// How often something had come from the client when that was set.
    heard: u64,
}

const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl KeepAlive ===

impl KeepAlive {
    pub(super) fn new(pings: PingPong) -> Self {
        Self { pings, next: Box::pin(sleep_until(Instant::now() + INTERVAL)), is_sent: false, heard: 0 }
    }

    /// `heard`: how often something has come from the client. Ready if nothing came after a PING. Its answer may come late: it is
    /// behind what the client sends, and the PING is behind what the client reads.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, heard: u64) -> Poll<()> {
        loop {
            if self.is_sent && self.pings.poll_pong(cx).is_ready() {
                self.is_sent = false;
                self.wait(INTERVAL, heard);
            }
            if self.next.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            match self.is_sent {
                true if heard == self.heard => return Poll::Ready(()),
                true => self.wait(TIMEOUT, heard),
                false if heard != self.heard => self.wait(INTERVAL, heard),
                false => {
                    // It fails if the connection does, which notices that itself.
                    self.is_sent = self.pings.send_ping(Ping::opaque()).is_ok();
                    self.wait(if self.is_sent { TIMEOUT } else { INTERVAL }, heard);
                }
            }
        }
    }

    fn wait(&mut self, time: Duration, heard: u64) {
        self.next.as_mut().reset(Instant::now() + time);
        self.heard = heard;
    }
}
