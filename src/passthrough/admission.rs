//! Admits requests to the apiserver. If there is no room, answers whose clients take nothing make room.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, sleep, timeout};

use super::metrics::ForwardMetrics;
use super::paced::Pace;
use super::places::{Client, Held, Place, Waiting};
use crate::memory::{HURRY, Lack};
use crate::meta::{RequestInfo, Verb};

pub(super) struct Admission {
    pub(super) pace: Pace,
    /// When answers were last given up in a hurry, and how many. Only what happened a moment ago: few clients can have all
    /// of their share at once.
    hurried: Mutex<HashMap<Whose, (Instant, u64)>>,
    given_up: Counter,
    overflows: Counter,
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) why: Why,
    lack: Lack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Memory,
    Busy,
}

/// What a request has while it is under way.
pub(super) type Admitted = (Place, Option<Held>);

/// The clients whose answers are given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    Client(Client),
    /// All clients that have much.
    Much,
    All,
}

/// How often, at most: each answer in flight is looked at.
const OFTEN: Duration = Duration::from_millis(100);
/// How long it takes at most until the memory of an answer that was given up is free.
const SOON: Duration = Duration::from_millis(50);
/// How long a request waits for room, and how long until it looks again.
const WAIT: Duration = Duration::from_secs(10);
/// How long it waits if all of the memory is in use: much of it may be of short requests, or of answers that are given up.
const WAIT_FOR_OTHERS: Duration = HURRY;
const AGAIN: Duration = Duration::from_millis(250);

// === impl Admission ===

impl Admission {
    pub(super) fn new(pace: Pace, metrics: &ForwardMetrics) -> Self {
        let (given_up, overflows) = (metrics.given_up.clone(), metrics.overflows.clone());
        Self { pace, hurried: Mutex::default(), given_up, overflows }
    }

    /// Reserves memory for a request and its answer, and takes a place for it. `length`: that of the request's body, if it
    /// is known. `gives_way`: it does not wait while others would get a place.
    ///
    /// # Errors
    /// There is no memory, or there was no room in time in the share of its client, or no place.
    pub(super) async fn admit(
        &self,
        client: &Client,
        info: &RequestInfo,
        length: Option<u64>,
        gives_way: bool,
    ) -> Result<Admitted, Refused> {
        let begun = Instant::now();
        let deadline = begun + WAIT;
        let hold = || self.pace.hold(client, info.verb == Verb::Watch, info.is_long(), length);
        let mut waiting = None;
        let held = loop {
            let lack = match hold() {
                Ok(held) => break held,
                Err(lack) => lack,
            };
            let refused = Refused { why: Why::Memory, lack };
            self.begin_to_wait(&mut waiting, client, refused)?;
            if self.hurry(Whose::of(lack, client)) > 0 {
                // Their streams have yet to drop what the library holds of them.
                sleep(SOON).await;
                if let Ok(held) = hold() {
                    break held;
                }
            }
            // The answers to others need not end soon. Those of one client end as it reads them.
            let is_over = if refused.is_its_own() { gives_way } else { begun.elapsed() >= WAIT_FOR_OTHERS };
            if is_over {
                return Err(refused);
            }
            self.wait(refused, deadline).await?;
        };
        loop {
            let lack = match self.pace.places.take(client, info.is_long()) {
                Ok(place) => return Ok((place, held)),
                Err(lack) => lack,
            };
            let refused = Refused { why: Why::Busy, lack };
            if gives_way && refused.is_its_own() {
                return Err(refused);
            }
            self.begin_to_wait(&mut waiting, client, refused)?;
            self.hurry(Whose::of(lack, client));
            self.wait(refused, deadline).await?;
        }
    }

    /// Few wait at the same time: each takes memory of its own.
    fn begin_to_wait<'a>(
        &'a self,
        waiting: &mut Option<Waiting<'a>>,
        client: &'a Client,
        refused: Refused,
    ) -> Result<(), Refused> {
        if waiting.is_none() {
            *waiting = self.pace.places.wait(client, refused.is_its_own());
        }
        if waiting.is_none() {
            self.overflows.inc();
            return Err(refused);
        }
        Ok(())
    }

    /// Waits until there may be room.
    async fn wait(&self, refused: Refused, deadline: Instant) -> Result<(), Refused> {
        if Instant::now() >= deadline {
            self.overflows.inc();
            return Err(refused);
        }
        // What becomes free wakes one who waits, who may not be allowed to take it.
        timeout(AGAIN, self.pace.places.freed.notified()).await.ok();
        Ok(())
    }

    /// Gives up the answers of these clients that stand or are slow. Returns how many were given up now, or a moment ago.
    pub(super) fn hurry(&self, whose: Whose) -> u64 {
        let now = Instant::now();
        let mut hurried = self.hurried.lock();
        hurried.retain(|_, (last, _)| now < *last + OFTEN);
        if let Some((_, given_up)) = hurried.get(&whose) {
            return *given_up;
        }
        let given_up = self.pace.hurry(HURRY, &|client| match (&whose, client) {
            (Whose::Client(whose), client) => client == Some(whose),
            (Whose::Much, client) => client.is_some_and(|client| self.pace.places.has_much(client)),
            (Whose::All, _) => true,
        });
        self.given_up.inc_by(given_up);
        hurried.insert(whose, (now, given_up));
        given_up
    }

    /// Gives up the answers whose clients have taken nothing for this long.
    pub(super) fn give_up(&self, patience: Duration) {
        self.given_up.inc_by(self.pace.give_up(patience));
    }
}

// === impl Whose ===

impl Whose {
    /// The answers that a client may get room from.
    fn of(lack: Lack, client: &Client) -> Self {
        match lack {
            Lack::Share => Self::Client(client.clone()),
            Lack::Much => Self::Much,
            Lack::All => Self::All,
        }
    }
}

// === impl Refused ===

impl Refused {
    /// Whether another client might have been admitted.
    pub(super) fn is_its_own(self) -> bool {
        self.lack != Lack::All
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

    /// Whether another client gets a place, and why not.
    async fn asks(admission: &Admission) -> Result<(), Why> {
        admission.admit(&OTHER, &info(), Some(0), false).await.map(drop).map_err(|refused| refused.why)
    }

    /// An answer whose client takes nothing, or everything of a body that does not end.
    async fn answered(admission: &Admission, to: &Client, takes: bool) -> (Response<ForwardBody>, Option<Bytes>) {
        let (place, held) = admission.admit(to, &info(), Some(0), false).await.unwrap();
        let part = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b'x'; 100])))]);
        let body = StreamBody::new(part.chain(stream::pending())).boxed_unsync();
        let mut response = Response::new(Placed::new(body, place).boxed_unsync());
        if let Some(held) = held {
            response.extensions_mut().insert(std::sync::Arc::new(held));
        }
        let mut response = admission.pace.answer(response, Some(to));
        let part = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(response.body_mut().frame().now_or_never().is_none());
        (response, Some(part).filter(|_| !takes))
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_place_of_an_answer_that_nobody_takes() {
        for takes in [false, true] {
            let (admission, metrics) = admission(1, None, usize::MAX);
            let _answer = answered(&admission, &ONE, takes).await;
            let began = Instant::now();
            let admitted = asks(&admission).await;
            let (result, given_up) = if takes { (Err(Why::Busy), 0) } else { (Ok(()), 1) };
            assert_eq!((admitted, metrics.given_up.get(), metrics.overflows.get()), (result, given_up, 1 - given_up));
            assert!(began.elapsed() < if takes { WAIT + AGAIN * 2 } else { HURRY + AGAIN * 2 });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_comes_from_answers_that_nobody_takes() {
        let (admission, metrics) = admission(10, Some(1000), 3000);
        let (response, part) = answered(&admission, &ONE, false).await;
        assert_eq!(asks(&admission).await, Err(Why::Memory), "its client has just begun");
        tokio::time::sleep(HURRY).await;
        let refused = asks(&admission).await;
        assert_eq!((refused, metrics.given_up.get()), (Err(Why::Memory), 1), "the library still has a part of it");
        // The stream is dropped, and with it what the library has.
        drop((response, part));
        assert!(asks(&admission).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_all_memory_in_use_waits_for_a_moment() {
        let (admission, metrics) = admission(10, Some(1000), 3000);
        let cases = [(HURRY / 2, Ok(())), (2 * HURRY, Err(Why::Memory))];
        for (gives_way, (ends_after, result)) in
            [false, true].into_iter().flat_map(|gives_way| cases.map(|case| (gives_way, case)))
        {
            let first = admission.admit(&ONE, &info(), Some(0), false).await.unwrap();
            let ends = async {
                sleep(ends_after).await;
                drop(first);
            };
            let asked = info();
            let (admitted, ()) = tokio::join!(admission.admit(&OTHER, &asked, Some(0), gives_way), ends);
            let admitted = admitted.map(drop).map_err(|refused| refused.why);
            assert_eq!((admitted, metrics.given_up.get()), (result, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_one_client_waits_for_its_own_answers() {
        let (admission, metrics) = admission(1000, Some(1000), 16_000);
        let few = async |number: u64| {
            let admitted = admission.admit(&ONE, &info(), Some(0), false).await?;
            sleep(Duration::from_millis(number % 7)).await;
            drop(admitted);
            Ok(())
        };
        let all = futures_util::future::join_all((0..200).map(few)).await;
        assert!(all.into_iter().collect::<Result<Vec<_>, Refused>>().is_ok());
        assert_eq!((metrics.given_up.get(), metrics.overflows.get()), (0, 0));
    }

    /// Who has its share, and asks for more, takes nothing from others.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_its_share_hurries_only_its_own_answers() {
        for (window, memory, most) in [(None, usize::MAX, 8), (Some(1000), 16_000, 4)] {
            let (admission, metrics) = admission(16, window, memory);
            let _other = answered(&admission, &OTHER, false).await;
            let mut own = Vec::new();
            for _ in 0..most {
                own.push(answered(&admission, &ONE, false).await);
            }
            sleep(2 * HURRY).await;
            let asked = admission.admit(&ONE, &info(), Some(0), false).await.map(drop).map_err(Refused::is_its_own);
            // What the library has of them is still in memory.
            let result = if window.is_some() { Err(true) } else { Ok(()) };
            assert_eq!((asked, metrics.given_up.get()), (result, most));
            assert_eq!(admission.pace.hurry(HURRY, &|_| true), 1, "that of the other was not given up");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_clients_with_much_have_most_those_with_little_are_left_alone() {
        let third = Client::Connection(3);
        let (admission, metrics) = admission(32, None, usize::MAX);
        let _third = answered(&admission, &third, false).await;
        let mut much = Vec::new();
        for _ in 0..16 {
            much.push(answered(&admission, &ONE, false).await);
        }
        for _ in 0..3 {
            much.push(answered(&admission, &OTHER, false).await);
        }
        sleep(2 * HURRY).await;
        assert!(admission.admit(&OTHER, &info(), Some(0), false).await.is_ok());
        assert_eq!(metrics.given_up.get(), 19);
        assert_eq!(admission.pace.hurry(HURRY, &|client| client == Some(&third)), 1);
    }
}
