//! What a reflector does when it cannot go on as before.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::proofs::Progress;
use super::Reflector;
use super::handle::Silence;
use super::machine::{Failure, Haste, Outcome};
use super::stream::EventStream;
use crate::apiserver::client::UpstreamError;
use crate::codec::table::Unprintable;
use crate::meta::ResourceVersion;

/// Reflectors that are woken together start spread over this time.
const STAGGER: Duration = Duration::from_millis(500);

/// An apiserver that is found again ends the wait of a reflector at most once in this time: something on the way may break
/// every connection.
const FOUND: Duration = Duration::from_secs(5);

// === impl Reflector ===

impl Reflector {
    pub(super) fn reset(&mut self) -> Outcome {
        let why = "the resource version of the apiserver went back: its store was restored from a backup";
        tracing::warn!(resource = %self.lister.resource.gvr, "{why}");
        self.writer.rewound(why);
        // The claims belong to the history that was rolled back.
        while self.claims.try_recv().is_ok() {}
        Outcome::WasReset
    }

    /// Waits until the time is over, or until the wait ends early: the apiserver answers again, it answers another
    /// reflector, it is found after connections broke, or it is this reflector's turn to try.
    pub(super) async fn wait(&mut self, until: Instant, not_before: Instant, haste: Haste) -> Outcome {
        let (mut recoveries, mut answers) = (self.recoveries.clone(), self.queue.answers());
        let called = async {
            // The senders are owned by the client.
            tokio::select! {
                _ = recoveries.changed() => {}
                _ = answers.changed(), if haste == Haste::Answer => {}
            }
            sleep(STAGGER.mul_f64(rand::random())).await;
            sleep_until(not_before).await;
        };
        // While the apiserver does not answer at all, the client looks for it on behalf of all reflectors.
        let has_turns = haste != Haste::None && self.upstream.is_reachable();
        let (upstream, queue) = (self.upstream.clone(), Arc::clone(&self.queue));
        let turn = async {
            sleep_until(not_before).await;
            queue.turn().await;
            upstream.metrics().early_retries.inc();
        };
        let (mut receiver, not_found_before) = (self.found.clone(), self.found_at.map(|at| at + FOUND));
        let found = async {
            receiver.changed().await.ok();
            sleep_until(not_before.max(not_found_before.unwrap_or(not_before))).await;
            sleep(STAGGER.mul_f64(rand::random())).await;
        };
        let (mut called, mut turn, mut found) = (pin!(called), pin!(turn), pin!(found));
        let outcome = loop {
            tokio::select! {
                () = sleep_until(until) => break Outcome::Elapsed,
                () = &mut called => break Outcome::Elapsed,
                () = &mut turn, if has_turns => break Outcome::Elapsed,
                () = &mut found, if haste != Haste::None => {
                    self.found_at = Some(Instant::now());
                    break Outcome::Elapsed;
                }
                // What was proved stays true while the stream is away.
                Some(claim) = self.claims.recv() => self.consider(claim),
                () = self.writer.account().recalled() => break self.recalled(),
            }
        };
        self.recoveries.mark_unchanged();
        self.found.mark_unchanged();
        outcome
    }

    /// Treats a proved claim like a bookmark. A claim is made only after the cache has reached its start. If the cache
    /// is below that, or the proof began before a reset, the claim is of a history that was rolled back.
    pub(super) fn consider(&mut self, claim: Progress) {
        let at = self.writer.resource_version();
        if self.writer.certain() < at {
            // Deletions of this revision may still come.
            return;
        }
        let is_of_now = self.writer.reset_at().is_none_or(|reset| reset < claim.asked);
        if is_of_now && !at.is_zero() && at >= claim.from && at < claim.to {
            self.writer.progress_proved(claim.to, claim.asked);
            self.handle.reached(claim.to);
        }
    }

    pub(super) fn watch_timeout(&self) -> Duration {
        self.config.watch_timeout.mul_f64(rand::rng().random_range(1.0..2.0))
    }

    /// The store contradicts the cache. The reflector lists again to find out why.
    pub(super) fn contradicted(&mut self, why: &str) -> Outcome {
        self.upstream.metrics().contradictions.inc();
        let resource = &self.lister.resource.gvr;
        tracing::warn!(%resource, why, "the apiserver's store contradicts the cache: perhaps it was restored from a backup");
        self.note(why, 0);
        self.writer.lacks_after(ResourceVersion::ZERO);
        Outcome::WentBack
    }

    /// The stream is open and does not say what it should. `None` if it has moved since that was found.
    pub(super) fn silent(&mut self, silence: &Silence, stream: &EventStream, heard: bool) -> Option<Outcome> {
        if silence.at != self.handle.position() {
            return None;
        }
        let Silence { why, missed, .. } = silence;
        let resource = &self.lister.resource.gvr;
        tracing::warn!(%resource, why, "the apiserver's watch is open and silent: opening another one");
        self.note(&format!("the watch was silent: {why}"), 0);
        self.avoided = stream.connection;
        Some(Outcome::Silent { missed: *missed, heard })
    }

    /// The stream broke, or it contained something that is not an event.
    pub(super) fn broken(&mut self, error: &UpstreamError) -> Outcome {
        if let UpstreamError::Table(_) = error {
            return self.failed(error);
        }
        if matches!(error, UpstreamError::Decode(_)) {
            self.handle.garbage();
        }
        self.note(&error.to_string(), 0);
        self.undecodable(error).unwrap_or(Outcome::Broken)
    }

    pub(super) fn failed(&mut self, error: &UpstreamError) -> Outcome {
        // An answer without a reason is not from the apiserver, so its status about permissions and encodings is
        // ignored.
        let believed = !matches!(error.code(), Some(403 | 406)) || error.is_refusal();
        let code = error.code().filter(|_| believed).unwrap_or(0);
        self.note(&error.to_string(), code);
        if let UpstreamError::Table(Unprintable::Changed | Unprintable::Definition) = error {
            return Outcome::Failed(Failure::Changed);
        } else if let UpstreamError::Table(_) = error {
            return Outcome::Failed(Failure::Unprintable);
        }
        if let Some(given_up) = self.undecodable(error) {
            return given_up;
        }
        let failure = match code {
            401 => Failure::Unauthorized,
            // Neither of the two ends soon.
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
            // The client logs this once, instead of every resource.
            tracing::debug!(%resource, state, error = text, "reflector is in trouble");
        }
        self.recoveries.mark_unchanged();
        self.handle.update(|status| {
            (status.last_error, status.last_error_at) = (Some(text.to_owned()), Some(Instant::now()));
            status.failing = Some(code);
        });
    }
}
