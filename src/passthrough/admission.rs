//! Admits requests to the apiserver. If there is no room, answers whose clients take nothing make room.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, sleep, timeout};

use super::metrics::ForwardMetrics;
use super::paced::Pace;
use super::places::{Client, Held, Place};
use crate::meta::{RequestInfo, Verb};

pub(super) struct Admission {
    pub(super) pace: Pace,
    /// When answers were last given up in a hurry, and how many.
    hurried: Mutex<Option<(Instant, u64)>>,
    given_up: Counter,
    overflows: Counter,
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Memory,
    Busy,
}

/// While memory or places are short, answers are given up if their client has taken nothing for this long.
const HURRY: Duration = Duration::from_secs(2);
/// How often, at most: each answer in flight is looked at.
const OFTEN: Duration = Duration::from_millis(100);
/// How long it takes at most until the memory of an answer that was given up is free.
const SOON: Duration = Duration::from_millis(50);
/// How long a request waits for a place, and how long until it looks again.
const WAIT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(250);

// === impl Admission ===

impl Admission {
    pub(super) fn new(pace: Pace, metrics: &ForwardMetrics) -> Self {
        let (given_up, overflows) = (metrics.given_up.clone(), metrics.overflows.clone());
        Self { pace, hurried: Mutex::default(), given_up, overflows }
    }

    /// Reserves memory for a request and its answer, and takes a place for it. `length`: that of the request's body, if it
    /// is known.
    ///
    /// # Errors
    /// There is no memory, or there was no place in time.
    pub(super) async fn admit(
        &self,
        client: &Client,
        info: &RequestInfo,
        length: Option<u64>,
    ) -> Result<(Place, Option<Held>), Refused> {
        let hold = || self.pace.hold(client, info.verb == Verb::Watch, info.is_long(), length);
        let held = match hold() {
            Err(_short) if self.hurry() > 0 => {
                // Their streams have yet to drop what the library holds of them.
                sleep(SOON).await;
                hold()
            }
            held => held,
        };
        let held = held.map_err(|_short| Refused::Memory)?;
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(place) = self.pace.places.take(client, info.is_long()) {
                return Ok((place, held));
            }
            if Instant::now() >= deadline {
                self.overflows.inc();
                return Err(Refused::Busy);
            }
            // A place that becomes free wakes one who waits, who may not be allowed to take it.
            self.hurry();
            timeout(AGAIN, self.pace.places.freed()).await.ok();
        }
    }

    /// Gives up the answers that others need the room of. Returns how many were given up now, or a moment ago.
    pub(super) fn hurry(&self) -> u64 {
        let now = Instant::now();
        let mut hurried = self.hurried.lock();
        match *hurried {
            Some((last, given_up)) if now < last + OFTEN => given_up,
            _ => {
                let given_up = self.give_up(HURRY);
                *hurried = Some((now, given_up));
                given_up
            }
        }
    }

    /// Gives up the answers whose clients have taken nothing for this long. Returns their number.
    pub(super) fn give_up(&self, patience: Duration) -> u64 {
        let given_up = self.pace.give_up(patience);
        self.given_up.inc_by(given_up);
        given_up
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use http::Response;
    use http_body::Frame;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;
    use crate::memory::{Ledger, Pressure};
    use crate::passthrough::paced::Placed;
    use crate::passthrough::places::Places;
    use crate::passthrough::{BoxError, ForwardBody};

    const ONE: Client = Client::Connection(1);
    const OTHER: Client = Client::Connection(2);

    fn admission(most: usize, window: Option<usize>, memory: usize) -> (Admission, ForwardMetrics) {
        let metrics = ForwardMetrics::default();
        let places = Places::new(most, Ledger::new(memory, Pressure::default()));
        (Admission::new(Pace::new(places, window), &metrics), metrics)
    }

    fn info() -> RequestInfo {
        RequestInfo::parse("GET", "/version", "")
    }

    /// An answer whose client takes nothing, or everything of a body that does not end.
    async fn answered(admission: &Admission, takes: bool) -> (Response<ForwardBody>, Option<Bytes>) {
        let (place, held) = admission.admit(&ONE, &info(), Some(0)).await.unwrap();
        let part = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b'x'; 100])))]);
        let body = StreamBody::new(part.chain(stream::pending())).boxed_unsync();
        let mut response = Response::new(Placed::new(body, place).boxed_unsync());
        if let Some(held) = held {
            response.extensions_mut().insert(std::sync::Arc::new(held));
        }
        let mut response = admission.pace.answer(response);
        let part = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(response.body_mut().frame().now_or_never().is_none());
        (response, Some(part).filter(|_| !takes))
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_place_of_an_answer_that_nobody_takes() {
        for takes in [false, true] {
            let (admission, metrics) = admission(1, None, usize::MAX);
            let _answer = answered(&admission, takes).await;
            let began = Instant::now();
            let admitted = admission.admit(&OTHER, &info(), Some(0)).await.map(drop);
            let (result, given_up) = if takes { (Err(Refused::Busy), 0) } else { (Ok(()), 1) };
            assert_eq!((admitted, metrics.given_up.get(), metrics.overflows.get()), (result, given_up, 1 - given_up));
            assert!(began.elapsed() < if takes { WAIT + AGAIN * 2 } else { HURRY + AGAIN * 2 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_comes_from_answers_that_nobody_takes() {
        let (admission, metrics) = admission(10, Some(1000), 3000);
        let (response, part) = answered(&admission, false).await;
        let refused = admission.admit(&OTHER, &info(), Some(0)).await.map(drop);
        assert_eq!(refused, Err(Refused::Memory), "its client has just begun");
        tokio::time::sleep(HURRY).await;
        let refused = admission.admit(&OTHER, &info(), Some(0)).await.map(drop);
        assert_eq!((refused, metrics.given_up.get()), (Err(Refused::Memory), 1), "the library still has a part of it");
        // The stream is dropped, and with it what the library has.
        drop((response, part));
        assert!(admission.admit(&OTHER, &info(), Some(0)).await.is_ok());
    }
}
