//! Waits for an apiserver that is away, and notices early that it may be.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::away::Away;
use super::mend::OverOpen;
use super::upstream::Upstream;
use crate::metrics::RequestVerb;

/// Bytes of bodies tell nobody that they have come, so it is looked for them this often.
const LOOK: Duration = Duration::from_secs(1);
/// If one of our own short questions has no answer after this time, and nothing else has come either, the client looks for the
/// apiserver.
const UNANSWERED: Duration = Duration::from_secs(2);
/// How long the apiserver may take to answer over a connection that is open, before the client looks for it.
const SILENT: Duration = Duration::from_secs(1);

// === impl Upstream ===

impl Upstream {
    /// Whether the apiserver was looked for, and nothing is there.
    pub fn away(&self) -> Option<Away> {
        let away = (*self.inner.health.misses.away.borrow())?;
        self.inner.metrics.heard.get().is_none_or(|heard| heard <= away.since).then_some(away)
    }

    /// Waits until nothing is where the apiserver should be.
    pub async fn gone(&self) {
        let mut changes = self.inner.health.misses.away.subscribe();
        // The sender is owned by the client.
        while self.away().is_none() && changes.changed().await.is_ok() {}
    }

    /// Waits for an answer, and looks for the apiserver if a short question has none and nothing else comes.
    pub(super) async fn doubting<T>(&self, answer: impl Future<Output = T>, verb: RequestVerb) -> T {
        let asked = Instant::now();
        let mut answer = pin!(answer);
        if matches!(verb, RequestVerb::Review | RequestVerb::Probe) {
            if let Ok(answer) = timeout(UNANSWERED, &mut answer).await {
                return answer;
            }
            if self.inner.metrics.heard.get().is_none_or(|heard| heard < asked) {
                // Who is only slow with this question answers another one. Looking for it would replace the connections, and what
                // is under way on them would be asked again.
                let open = OverOpen::ask(self, &self.inner.current.load_full());
                tokio::select! {
                    answer = &mut answer => return answer,
                    is_silent = open.says_nothing_for(SILENT) => if is_silent { self.inner.health.doubt() },
                }
            }
        }
        answer.await
    }

    /// Waits until something is there.
    pub async fn back(&self) {
        let mut changes = self.inner.health.misses.away.subscribe();
        while self.away().is_some() {
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep(LOOK) => {}
            }
        }
    }
}
