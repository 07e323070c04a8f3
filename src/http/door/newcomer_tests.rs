use std::pin::pin;

use super::*;

fn request(headers: usize, value: usize) -> Request<()> {
    let mut request = Request::get("/api/v1/pods");
    for n in 0..headers {
        request = request.header(format!("h{n}"), "x".repeat(value));
    }
    request.body(()).unwrap()
}

fn address(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

/// So many of one address.
async fn crowd(all: &Arc<Newcomers>, count: usize) -> Vec<Arc<Newcomer>> {
    let mut crowd = Vec::new();
    for _ in 0..count {
        crowd.push(all.place(address(1)).await);
    }
    crowd
}

async fn newcomer() -> Arc<Newcomer> {
    Newcomers::new(usize::MAX, Arc::default()).place(address(1)).await
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_the_address_with_the_most_leaves_and_has_had_its_time() {
    let all = Newcomers::new(usize::MAX, Arc::default());
    let other = all.place(address(2)).await;
    let crowd = crowd(&all, MOST - 1).await;
    let started = Instant::now();
    let late = all.place(address(1)).await;
    assert_eq!(started.elapsed(), SILENCE);
    assert!(crowd[0].leave.is_cancelled() && !crowd[1].leave.is_cancelled() && !other.leave.is_cancelled());
    assert_eq!((all.metrics.newcomers_open.get(), all.metrics.newcomers_evicted.get()), (128, 1));
    // An authenticated client makes room at once and is not counted.
    late.authenticated();
    assert_eq!(all.metrics.newcomers_open.get(), 127);
    all.place(address(3)).await;
    assert_eq!(started.elapsed(), SILENCE);
    drop(crowd);
    drop(other);
    assert_eq!(all.metrics.newcomers_open.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_few_does_not_wait_for_a_crowd() {
    let all = Newcomers::new(usize::MAX, Arc::default());
    let mut crowd: Vec<_> = (0..MOST).map(|_| all.try_place(address(1)).unwrap()).collect();
    let waits = all.try_place(address(1)).unwrap_err();
    assert_eq!(waits, Instant::now() + SILENCE);
    // This address gets places until the crowd has no more than `CROWDED` times as many.
    let few: Vec<_> = std::iter::from_fn(|| all.try_place(address(2)).ok()).collect();
    assert_eq!(few.len(), MOST / (CROWDED + 1));
    assert!(all.try_place(address(3)).is_ok(), "there is always room for one more address");
    crowd.retain(|one| !one.leave.is_cancelled());
    assert_eq!(crowd.len() + few.len() + 1, MOST);
}

#[tokio::test(start_paused = true)]
async fn who_has_got_less_far_leaves_sooner() {
    let all = Newcomers::new(usize::MAX, Arc::default());
    // Each has an address of its own, as if somebody had many.
    let there: Vec<_> = (0..MOST).map(|n| all.try_place(address(n as u8)).unwrap()).collect();
    let gone = || (0..MOST).filter(|at| there[*at].leave.is_cancelled()).collect::<Vec<_>>();
    there.iter().for_each(|one| one.reached(Stage::Begun));
    there[0].reached(Stage::Encrypted);
    there[1].reached(Stage::Encrypted);
    there[5].reached(Stage::Silent);
    there[6].reached(Stage::Silent);
    let new = IpAddr::from([10, 0, 1, 0]);
    let started = Instant::now();
    let _first = all.place(new).await;
    assert_eq!((started.elapsed(), gone()), (SILENCE, vec![5]));
    let _second = all.place(new).await;
    assert_eq!((started.elapsed(), gone()), (SILENCE, vec![5, 6]), "at once");
    _first.reached(Stage::Begun);
    _second.reached(Stage::Begun);
    let _third = all.place(new).await;
    assert_eq!((started.elapsed(), gone()), (PATIENCE, vec![2, 5, 6]), "the handshake of the oldest is complete");
}

#[tokio::test(start_paused = true)]
async fn a_network_of_ipv6_is_one_address() {
    let all = Newcomers::new(usize::MAX, Arc::default());
    let of = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
    let _crowd: Vec<_> = (0..128).map(|host| all.try_place(of(1, host)).unwrap()).collect();
    assert!(all.try_place(of(1, 999)).is_err() && all.try_place(of(2, 1)).is_ok());
}

#[tokio::test]
async fn few_of_its_calls_last() {
    let one = newcomer().await;
    let mut lasting: Vec<_> = (0..LASTING).map(|_| one.lasting().unwrap()).collect();
    assert_eq!(one.lasting().unwrap_err(), TooMuch::Requests);
    lasting.pop();
    lasting.push(one.lasting().unwrap());
    assert_eq!(one.lasting().unwrap_err(), TooMuch::Requests);
    one.authenticated();
    assert!(one.lasting().unwrap().is_none(), "it is known");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_left_is_taken_by_who_waits() {
    let all = Newcomers::new(usize::MAX, Arc::default());
    let crowd = crowd(&all, MOST).await;
    let mut waiting = pin!(all.place(address(1)));
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    crowd[7].authenticated();
    assert!(futures_util::poll!(waiting).is_ready());
    assert_eq!(all.metrics.newcomers_evicted.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_asks_for_nothing_is_sent_away() {
    let (silent, busy, known) = (newcomer().await, newcomer().await, newcomer().await);
    let heard = busy.hear(&request(1, 1)).unwrap();
    known.authenticated();
    let started = Instant::now();
    silent.sent_away().await;
    assert_eq!(started.elapsed(), HEAD_TIMEOUT);
    let waits = tokio::time::timeout(10 * HEAD_TIMEOUT, async { tokio::join!(busy.sent_away(), known.sent_away()) });
    assert!(waits.await.is_err());
    drop(heard);
    busy.sent_away().await;
}

#[tokio::test]
async fn its_requests_hold_little() {
    let all = Newcomers::new(usize::MAX, Arc::default());
    let one = all.place(address(1)).await;
    assert_eq!(one.hear(&request(2, 40_000)).unwrap_err(), TooMuch::Head);
    assert_eq!(one.hear(&request(2000, 1)).unwrap_err(), TooMuch::Head, "each header counts 32 bytes more");
    let reader = futures_util::task::noop_waker();
    let heard: Vec<_> = (0..REQUESTS).map(|_| one.hear(&request(1, 1)).unwrap()).collect();
    assert_eq!(one.reader_may(&reader, false), Wait::Judged, "the next one is not read yet");
    // The limit over all newcomers.
    let mut others = Vec::new();
    let refused = loop {
        let other = all.place(address(2)).await;
        match other.hear(&request(1, 60_000)) {
            Ok(heard) => others.push((other, heard)),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, TooMuch::Requests);
    assert!(all.held.load(Ordering::Relaxed) <= HELD && others.len() > 60);
    drop((heard, others));
    assert_eq!((all.held.load(Ordering::Relaxed), one.requests.load(Ordering::Relaxed)), (0, 0));
    assert_eq!((one.reader_may(&reader, false), one.reader_may(&reader, true)), (Wait::Over, Wait::Never));
    one.authenticated();
    assert!(one.hear(&request(2, 40_000)).unwrap().is_none(), "it is known");
}

#[tokio::test]
async fn few_go_on_unjudged() {
    let all = Newcomers::new(usize::MAX, Arc::default());
    let newcomers = crowd(&all, UNJUDGED).await;
    assert!(newcomers.iter().all(|one| one.go_on_unjudged()));
    let late = all.place(address(1)).await;
    assert!(newcomers[0].go_on_unjudged() && !late.go_on_unjudged());
    newcomers[0].authenticated();
    assert!(late.go_on_unjudged());
}
