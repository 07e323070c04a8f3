//! What is tried again, and when.

use std::time::{Duration, Instant};

use rand::Rng;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::outage::Outage;
use crate::{Client, Error};

const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Also of what an error asks for: a client that is told to wait for longer would seem to hang.
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// What this informerd is configured not to cache. The other reasons of `FAILED_PRECONDITION` pass.
const NOT_CACHED: [&str; 5] = ["EXCLUDED", "NOT_READABLE", "AGGREGATED", "OUT_OF_SCOPE", "UNSUPPORTED"];

/// The errors of one watch or queue.
pub(crate) struct Retry {
    client: Client,
    pub(crate) what: String,
    refused: Outage,
    delay: Duration,
    began: Instant,
}

// === impl Retry ===

impl Retry {
    pub(crate) fn new(client: Client, what: String) -> Self {
        let refused = Outage::new(format!("{what} at {}", client.server().address()), "fails", "goes on");
        Self { client, what, refused, delay: FIRST_DELAY, began: Instant::now() }
    }

    /// A stream is about to be opened.
    pub(crate) fn begins(&mut self) {
        self.began = Instant::now();
    }

    /// informerd has answered on it.
    pub(crate) fn alive(&self) {
        self.client.unreachable.over();
        self.refused.over();
    }

    /// How long to wait before the next stream.
    pub(crate) fn after_goodbye(&mut self, asked: Duration) -> Duration {
        self.settle();
        FIRST_DELAY.mul_f64(rand::rng().random()).max(asked.min(LONGEST_DELAY))
    }

    /// The same, or the error that trying again does not help against.
    pub(crate) fn after_error(&mut self, status: &Status) -> Result<Duration, Error> {
        let reason = reason(status);
        if let Some(reason) = &reason
            && self.is_permanent(status.code(), reason)
        {
            return Err(Error::Refused {
                address: self.client.server().address().to_owned(),
                what: self.what.clone(),
                code: status.code(),
                message: status.message().to_owned(),
                reason: reason.clone(),
            });
        }
        self.settle();
        let outage = if reason.is_some() { &self.refused } else { &*self.client.unreachable };
        outage.failed(&told(status));
        // Clients that were cut off together do not come back together.
        let wait = self.delay.mul_f64(rand::rng().random_range(0.5..1.5));
        self.delay = (2 * self.delay).min(LONGEST_DELAY);
        let asked = status.get_details_retry_info().and_then(|info| info.retry_delay).unwrap_or_default();
        Ok(wait.max(asked.min(LONGEST_DELAY)))
    }

    fn is_permanent(&self, code: Code, reason: &str) -> bool {
        match code {
            Code::InvalidArgument | Code::NotFound | Code::PermissionDenied | Code::Unimplemented => true,
            // The kubelet may be about to replace the token.
            Code::Unauthenticated => self.client.server().token_file().is_none(),
            Code::FailedPrecondition => NOT_CACHED.contains(&reason),
            _ => false,
        }
    }

    fn settle(&mut self) {
        if self.began.elapsed() > LONGEST_DELAY {
            self.delay = FIRST_DELAY; // It went well for a while.
        }
    }
}

/// The reason of informerd's `ErrorInfo`. Without it, an error is the library's or a proxy's word on the connection.
pub(crate) fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().filter(|info| info.domain == "informerd.io").map(|info| info.reason)
}

/// With the causes, which tonic does not tell: "transport error" alone says nothing.
fn told(status: &Status) -> String {
    let mut text = format!("{:?}: {}", status.code(), status.message());
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
