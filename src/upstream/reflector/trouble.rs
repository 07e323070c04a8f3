//! What a reflector does when it cannot go on as it was.

use std::time::Duration;

use rand::Rng as _;
use tokio::time::{Instant, sleep_until};

use super::Reflector;
use super::machine::{Failure, Outcome};
use crate::codec::table::Unprintable;
use crate::upstream::client::UpstreamError;
use crate::upstream::progress::Progress;

// === impl Reflector ===

impl Reflector {
    pub(super) fn reset(&mut self) -> Outcome {
        let why = "the resource version of the apiserver went back: its store was restored from a backup";
        tracing::warn!(resource = %self.lister.resource.gvr, "{why}");
        self.writer.not_ready(why);
        // They are of the past that did not happen.
        while self.claims.try_recv().is_ok() {}
        Outcome::WasReset
    }

    pub(super) async fn wait(&mut self, until: Instant) -> Outcome {
        loop {
            tokio::select! {
                () = sleep_until(until) => return Outcome::Elapsed,
                // The apiserver was away and has answered somebody else. The sender lives in the client.
                _ = self.recoveries.changed() => return Outcome::Elapsed,
                // What is proven stays true while the stream is away.
                Some(claim) = self.claims.recv() => self.consider(claim),
                () = self.writer.recalled() => return self.recalled(),
            }
        }
    }

    /// Takes for a bookmark what a probe has proved. A claim is made once the cache has what it starts from; one that
    /// finds the cache before that is of a time before a reset.
    pub(super) fn consider(&mut self, claim: Progress) {
        let at = self.writer.resource_version();
        if !at.is_zero() && at >= claim.from && at < claim.to {
            self.writer.progress(claim.to);
            self.handle.reached(claim.to);
        }
    }

    pub(super) fn watch_timeout(&self) -> Duration {
        self.config.watch_timeout.mul_f64(rand::rng().random_range(1.0..2.0))
    }

    /// The stream broke, or what came by it was no event.
    pub(super) fn broken(&mut self, error: &UpstreamError) -> Outcome {
        if let UpstreamError::Table(_) = error {
            return self.failed(error);
        }
        if matches!(error, UpstreamError::Decode(_)) {
            self.handle.garbage();
        }
        self.note(&error.to_string(), 0);
        Outcome::Broken
    }

    pub(super) fn failed(&mut self, error: &UpstreamError) -> Outcome {
        let code = error.code().unwrap_or(0);
        self.note(&error.to_string(), code);
        if let UpstreamError::Table(Unprintable::Changed | Unprintable::Definition) = error {
            return Outcome::Failed(Failure::Changed);
        } else if let UpstreamError::Table(_) = error {
            return Outcome::Failed(Failure::Unprintable);
        }
        let failure = match code {
            401 => Failure::Unauthorized,
            // Neither is over soon.
            403 | 406 => Failure::Forbidden,
            404 => Failure::NotFound,
            410 => Failure::Expired,
            429 | 500..=599 => Failure::Unavailable { retry_after: error.retry_after() },
            _ => Failure::Other,
        };
        Outcome::Failed(failure)
    }

    pub(super) fn note(&mut self, text: &str, code: u16) {
        let (resource, state) = (&self.lister.resource.gvr, self.machine.state().as_str());
        if self.upstream.is_reachable() {
            tracing::info!(%resource, state, error = text, "reflector is in trouble");
        } else {
            // That is said once, by the client, and not for every resource.
            tracing::debug!(%resource, state, error = text, "reflector is in trouble");
        }
        self.recoveries.mark_unchanged();
        self.handle.update(|status| {
            (status.last_error, status.last_error_at) = (Some(text.to_owned()), Some(Instant::now()));
            status.failing = Some(code);
        });
    }
}
