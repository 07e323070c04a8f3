//! The reflector's main loop: one step of its machine at a time, each with its own span.

use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::end::ReflectorEnd;
use super::machine::{Outcome, State};
use super::{LARGE_PAGE, Reflector};
use crate::telemetry::trace::SPANS;

impl Reflector {
    /// Runs until the resource is gone. Dropping the future stops the reflector and its cache.
    pub async fn run(mut self) -> ReflectorEnd {
        loop {
            let state = self.machine.state();
            if let State::Ended(end) = state {
                return end;
            }
            let span = self.span(state);
            let outcome = self.step(state).instrument(span.clone()).await;
            let has_read = matches!(state, State::WatchList | State::List | State::ListWhole);
            if has_read && !matches!(outcome, Outcome::Synced) {
                self.writer.account().abandon();
            }
            if !span.is_disabled() {
                span.record("informerd.outcome", format!("{outcome:?}"));
                span.record("informerd.resource_version", self.writer.resource_version().to_string());
                if matches!(outcome, Outcome::Failed(_) | Outcome::Broken | Outcome::WentBack | Outcome::GivenUp) {
                    span.record("otel.status_code", "ERROR");
                }
            }
            self.advance(outcome);
        }
    }

    async fn step(&mut self, state: State) -> Outcome {
        match state {
            // Nothing is left to do.
            State::Ended(_) => std::future::pending().await,
            _ if self.writer.account().is_recalled() => self.recalled(),
            State::Load => self.load().await,
            State::Learn => self.learn().await,
            State::WatchList => self.watch_list().await,
            State::List if self.by_list => self.list(LARGE_PAGE).await,
            State::List => self.list(self.config.page_size).await,
            State::ListWhole => self.list(0).await,
            State::Check | State::Confirm => self.current().await,
            State::Watch => self.watch().await,
            State::Follow => self.follow().await,
            State::Reset => self.reset(),
            State::Wait { until, not_before, haste, .. } => self.wait(until, not_before, haste).await,
            State::Refused { until } => self.refused(until).await,
        }
    }

    /// The span of a step that sends requests to the apiserver or follows it. A wait has no span.
    fn span(&self, state: State) -> Span {
        if matches!(state, State::Wait { .. } | State::Refused { .. } | State::Reset) {
            return Span::none();
        }
        let resource = || self.lister.resource.gvr.group_resource();
        tracing::info_span!(
            target: SPANS,
            parent: None,
            "reflector",
            otel.name = format!("reflector {} {}", state.as_str(), resource()),
            otel.status_code = Empty,
            informerd.resource = resource(),
            informerd.encoding = self.lister.encoding.as_str(),
            informerd.outcome = Empty,
            informerd.resource_version = Empty,
        )
    }
}

// === impl State ===

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Learn => "learn",
            Self::WatchList => "watchList",
            Self::List | Self::ListWhole => "list",
            Self::Check => "check",
            Self::Watch => "watch",
            Self::Follow => "follow",
            Self::Confirm => "confirm",
            Self::Reset => "reset",
            Self::Wait { .. } => "wait",
            Self::Refused { .. } => "refused",
            Self::Ended(_) => "ended",
        }
    }
}
