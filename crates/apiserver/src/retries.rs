//! Early attempts of reflectors that are in backoff.
//!
//! A reflector in backoff notices the end of a long outage late. So the reflectors that wait for the same server may
//! try early, one after another, at a pace that does not depend on how many wait. When one that was refused follows
//! again, the others that were refused stop waiting.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use informerd_meta::{Origin, Resource};

/// The queues of one apiserver.
#[derive(Debug, Default)]
pub struct Retries {
    /// The queues by server: the kube-apiserver itself, its custom resources, and each aggregated API group. There are
    /// at most as many as informers.
    queues: Mutex<HashMap<Box<str>, Arc<Queue>>>,
}

/// The reflectors that wait for one server.
#[derive(Debug, Default)]
pub struct Queue {
    /// Held by the reflector that tries next.
    turn: tokio::sync::Mutex<()>,
    trouble: Mutex<Option<Trouble>>,
    /// Changes when a reflector that was refused follows again.
    answers: watch::Sender<Option<Instant>>,
}

#[derive(Clone, Copy, Debug)]
struct Trouble {
    since: Instant,
    last: Instant,
}

/// The pause between two early attempts is an eighth of the duration of the trouble, within these bounds.
const FASTEST: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(4);
const PART: u32 = 8;

/// After this long without trouble, the next trouble counts as new.
const PEACE: Duration = Duration::from_secs(30);

/// Minimum time between two signals that a server answers again. It protects a server that answers some requests and
/// refuses others from a burst of requests.
const SIGNALS: Duration = Duration::from_secs(2);

// === impl Retries ===

impl Retries {
    /// The queue for the server of a resource.
    pub fn queue(&self, resource: &Resource) -> Arc<Queue> {
        let server = match resource.origin {
            Origin::BuiltIn => "",
            // Their conversion webhooks may fail forever, which must not delay the others.
            Origin::Custom { .. } => "apiextensions.k8s.io",
            _ => &resource.gvr.group,
        };
        let mut queues = self.queues.lock();
        Arc::clone(queues.entry(server.into()).or_default())
    }
}

// === impl Queue ===

impl Queue {
    /// Records that a reflector begins to wait.
    pub fn trouble(&self) {
        let now = Instant::now();
        let mut trouble = self.trouble.lock();
        let since = trouble.filter(|trouble| now - trouble.last < PEACE).map_or(now, |trouble| trouble.since);
        *trouble = Some(Trouble { since, last: now });
    }

    /// Records that a reflector that was refused follows again.
    pub fn answered(&self) {
        let now = Instant::now();
        self.answers.send_if_modified(|last| {
            let is_due = last.is_none_or(|last| now - last >= SIGNALS);
            if is_due {
                *last = Some(now);
            }
            is_due
        });
    }

    pub fn answers(&self) -> watch::Receiver<Option<Instant>> {
        self.answers.subscribe()
    }

    /// Waits for the turn to try: first come, first served. Dropping the future gives up the turn.
    pub async fn turn(&self) {
        let _turn = self.turn.lock().await;
        sleep(self.pace()).await;
    }

    fn pace(&self) -> Duration {
        let lasted = self.trouble.lock().map_or(Duration::ZERO, |trouble| trouble.since.elapsed());
        (lasted / PART).clamp(FASTEST, SLOWEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_many_wait_one_after_the_other_tries() {
        let queue = Arc::new(Queue::default());
        queue.trouble();
        let started = Instant::now();
        let turns = (0..5).map(|_| async {
            queue.turn().await;
            started.elapsed().as_secs()
        });
        assert_eq!(futures_util::future::join_all(turns).await, [1, 2, 3, 4, 5]);
        // A caller that gives up does not delay the next one.
        tokio::time::timeout(Duration::from_millis(100), queue.turn()).await.unwrap_err();
        queue.turn().await;
        assert!(started.elapsed() < Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn the_pace_follows_the_length_of_the_trouble() {
        let queue = Queue::default();
        for (after, pace) in [(0, 1), (16, 2), (8, 3), (29, 4), (29, 4), (31, 1)] {
            tokio::time::advance(Duration::from_secs(after)).await;
            queue.trouble();
            assert_eq!(queue.pace(), Duration::from_secs(pace), "{after}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn signals_are_bounded() {
        let queue = Queue::default();
        let mut answers = queue.answers();
        let mut signals = 0;
        for _ in 0..100 {
            queue.answered();
            signals += u32::from(answers.has_changed().unwrap());
            answers.mark_unchanged();
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(signals, 5);
    }
}
