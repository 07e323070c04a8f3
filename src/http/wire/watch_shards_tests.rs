use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::io::Bounded;
use super::*;
use crate::auth::Lease;
use crate::cache::WatchStart;
use crate::codec::Slices;
use crate::http::answer::{Body, WatchBody};
use crate::http::testing::{FIRST, Takes, World, added_text, body, counted, largest_turn, objects, until, watch};
use crate::lifecycle::drain;
use crate::lifecycle::ending::Ending;
use crate::memory::Ledger;
use crate::meta::errors;

const STALL: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(60);

type Polled = Poll<Option<Result<Frame<Slices>, BoxError>>>;

/// The bytes of each frame of a [`large`] body.
const FRAME: usize = 256 << 10;

/// A body that is polled like this.
fn polled(poll: impl FnMut(&mut Context<'_>) -> Polled + Send + 'static) -> Body {
    Body::new(StreamBody::new(stream::poll_fn(poll)))
}

fn panics(also_when_dropped: bool) -> Body {
    struct Dropped(bool);
    impl Drop for Dropped {
        fn drop(&mut self) {
            assert!(!self.0, "on purpose");
        }
    }
    let dropped = Dropped(also_when_dropped);
    polled(move |_| {
        let _kept = &dropped;
        panic!("on purpose")
    })
}

/// Has so many large frames at once.
fn large(frames: usize) -> Body {
    let mut frames = (0..frames).map(|_| Ok(Frame::data(bytes::Bytes::from_static(&[b'x'; FRAME]).into())));
    polled(move |_| Poll::Ready(frames.next()))
}

/// The client reads the event of this object next.
async fn reads(client: &mut DuplexStream, number: usize, size: usize) {
    let event = added_text(number, size);
    let expected = format!("{:x}\r\n{event}\r\n", event.len());
    let mut got = vec![0; expected.len()];
    timeout(LONG, client.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got == expected.as_bytes());
}

/// A watch in a shard, and its client.
fn start(shards: &WatchShards, body: Body, buffer: usize) -> (Sharded<DuplexStream>, DuplexStream) {
    let (client, ours) = duplex(buffer);
    let io = Bounded::new(ours, STALL, Arc::default(), None);
    (shards.run(WatchWriter::new(io, body, Vec::new())), client)
}

fn live(world: &World) -> Body {
    world.body(WatchStart::Now)
}

async fn end<S>(watch: &Sharded<S>) -> Result<(), BoxError> {
    timeout(LONG, std::future::poll_fn(|cx| watch.poll(cx))).await.unwrap().map(drop)
}

fn sizes(shards: &WatchShards) -> Vec<usize> {
    shards.0.lock().iter().map(|shard| shard.watches).collect()
}

#[tokio::test]
async fn places_are_free_again_when_watches_end() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let mut watches: Vec<_> = (0..=MOST).map(|_| start(&shards, live(&world), 64)).collect();
    assert_eq!(sizes(&shards), [MOST, 1]);
    watches.swap_remove(5);
    until(|| sizes(&shards) == [MOST - 1, 1]).await;
    watches.push(start(&shards, live(&world), 64));
    assert_eq!(sizes(&shards), [MOST - 1, 2], "the shard that has few");
    assert_eq!(world.cache.stats().watchers, MOST + 1);
    world.add(FIRST, 5).await;
    for in_either_shard in [0, MOST] {
        reads(&mut watches[in_either_shard].1, FIRST, 5).await;
    }
    drop(watches);
    assert_eq!(world.cache.stats().watchers, 0, "a watch ends with its connection at once");
    until(|| sizes(&shards).is_empty()).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_up_no_other() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let (_slow, _silent) = start(&shards, live(&world), 64);
    let (_fast, mut client) = start(&shards, live(&world), 1 << 20);
    for number in 0..10 {
        world.add(FIRST + number, 900).await;
        reads(&mut client, FIRST + number, 900).await;
    }
}

#[tokio::test]
async fn a_panic_ends_one_watch() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let (_other, mut client) = start(&shards, live(&world), 1 << 20);
    let (panics, _client) = start(&shards, panics(false), 64);
    let before = crate::lifecycle::panics();
    assert_eq!(end(&panics).await.unwrap_err().to_string(), "the watch has panicked");
    assert!(crate::lifecycle::panics() > before);
    world.add(FIRST, 5).await;
    reads(&mut client, FIRST, 5).await;
}

#[tokio::test]
async fn other_tasks_have_their_turn_in_the_middle_of_an_event() {
    let mut world = World::new(objects(1, 5)).await;
    let (shards, writes) = (WatchShards::default(), Arc::<AtomicUsize>::default());
    let watches: Vec<_> = (0..MOST)
        .map(|_| {
            let writes = Arc::clone(&writes);
            let took = move |_: &[u8]| _ = writes.fetch_add(1, Ordering::Relaxed);
            let io = Bounded::new(Takes::new(bytes::Bytes::new(), true, took), STALL, Arc::default(), None);
            shards.run(WatchWriter::new(io, live(&world), Vec::new()))
        })
        .collect();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    world.add(FIRST, 900).await;
    let largest = largest_turn(&writes, watches.len()).await;
    assert!((2..=MOST / 2).contains(&largest), "{largest}");
    assert_eq!(writes.load(Ordering::Relaxed), MOST, "one system call for each");
}

/// Sockets that take everything at once, and watches that always have more.
#[tokio::test]
async fn a_turn_writes_a_bounded_number_of_bytes() {
    const FRAMES: usize = 40;
    let (shards, got) = (WatchShards::default(), Arc::<AtomicUsize>::default());
    let watches: Vec<_> = (0..FEW)
        .map(|_| {
            let io = Bounded::new(counted(Arc::clone(&got), true), STALL, Arc::default(), None);
            shards.run(WatchWriter::new(io, large(FRAMES), Vec::new()))
        })
        .collect();
    let largest = largest_turn(&got, FEW * FRAMES * FRAME).await;
    for watch in watches {
        end(&watch).await.unwrap();
    }
    assert!((1 << 20..=5 << 20).contains(&largest), "{largest}");
}

#[tokio::test]
async fn a_shard_that_fails_ends_its_connections_and_gets_no_more() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let (other, _client) = start(&shards, live(&world), 1 << 20);
    let (panics, _client_of_panics) = start(&shards, panics(true), 64);
    end(&panics).await.unwrap_err();
    assert_eq!(end(&other).await.unwrap_err().to_string(), "the task of the watch has ended");
    until(|| sizes(&shards).is_empty()).await;
    let (_next, mut client) = start(&shards, live(&world), 1 << 20);
    world.add(FIRST, 5).await;
    reads(&mut client, FIRST, 5).await;
}

#[test]
fn each_thread_has_a_shard_before_any_is_full() {
    let grow = |threads: usize, watches: usize| {
        let mut shards = Vec::new();
        for _ in 0..watches {
            match with_room(&mut shards, threads) {
                Some(shard) => shard.watches += 1,
                None => shards.push(WatchShard { watches: 1, handle: Multiplexer::new().handle() }),
            }
        }
        shards.into_iter().map(|shard| shard.watches).collect::<Vec<_>>()
    };
    assert_eq!(grow(3, FEW), [FEW]);
    assert_eq!(grow(3, 3 * FEW - 1), [FEW, FEW, FEW - 1]);
    assert_eq!(grow(3, 300), [300 - 2 * FEW, FEW, FEW]);
    assert_eq!(grow(3, 3 * MOST), [MOST; 3]);
    assert_eq!(grow(3, 3 * MOST + 10), [MOST, MOST, MOST, 10]);
    assert_eq!(grow(1, MOST + 1), [MOST, 1]);
}

/// What would have woken the task of the connection wakes the shard after the handover.
#[tokio::test(start_paused = true)]
async fn a_watch_that_was_polled_before_is_woken_by_all_that_it_waits_for() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let (drain, draining) = drain::channel();
    let handed_over = |lease| {
        let (client, ours) = duplex(1 << 20);
        let ending = Ending::new(&draining, Duration::ZERO, Duration::ZERO);
        let answer = world.watch(WatchStart::Now);
        let body = WatchBody::new(answer, lease, None, ending, &Arc::default(), &Ledger::default());
        let mut writer = WatchWriter::new(Bounded::new(ours, STALL, Arc::default(), None), Body::new(body), Vec::new());
        assert!(writer.poll(&mut Context::from_waker(Waker::noop()), &mut Turn::new()).is_pending() && writer.waits);
        (shards.run(writer), client)
    };
    let (lose, lost) = oneshot::channel();
    let (_event, mut gets_event) = handed_over(Lease::all([]));
    let (leaves, client) = handed_over(Lease::all([]));
    let (loses_right, mut without_right) = handed_over(Lease::until(lost));
    let (drained, _client_of_drained) = handed_over(Lease::all([]));
    // All have run in the shard once.
    tokio::time::sleep(Duration::from_millis(1)).await;

    drop(client);
    end(&leaves).await.unwrap_err();
    lose.send(Box::new(errors::unauthorized())).unwrap();
    end(&loses_right).await.unwrap();
    let mut text = vec![0; 100];
    without_right.read_exact(&mut text).await.unwrap();
    assert!(String::from_utf8(text).unwrap().contains("ERROR"));

    world.add(FIRST, 5).await;
    reads(&mut gets_event, FIRST, 5).await;

    // Its deadline is far away.
    drain.start(Duration::from_secs(10));
    end(&drained).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_polled_before_ends_at_its_deadline() {
    let world = World::new(objects(1, 5)).await;
    let (_client, ours) = duplex(1 << 20);
    let mut writer = WatchWriter::new(Bounded::new(ours, STALL, Arc::default(), None), live(&world), Vec::new());
    assert!(writer.poll(&mut Context::from_waker(Waker::noop()), &mut Turn::new()).is_pending() && writer.waits);
    let watch = WatchShards::default().run(writer);
    // The clock moves on to the next timer.
    std::future::poll_fn(|cx| watch.poll(cx)).await.map(drop).unwrap();
}

/// A watch in the middle of its initial part goes on in the task of its connection.
#[tokio::test]
async fn a_watch_that_pauses_does_not_wait() {
    let pauses = polled(|_| Poll::Ready(Some(Ok(Frame::data(Slices::new())))));
    let (_client, ours) = duplex(1 << 20);
    let io = Bounded::new(ours, STALL, Arc::default(), None);
    let mut writer = WatchWriter::new(io, pauses, Vec::new());
    let polled = std::future::poll_fn(|cx| Poll::Ready(writer.poll(cx, &mut Turn::new()).is_pending())).await;
    assert!(polled && !writer.waits);
}

/// Watches that come, get events and go, on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_between_threads() {
    const EVENTS: usize = 300;
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let stays: Vec<_> = (0..40)
        .map(|_| {
            let (watch, mut client) = start(&shards, live(&world), 2_000);
            spawn("reader", async move {
                let _watch = watch;
                for number in 0..EVENTS {
                    let expected = added_text(FIRST + number, 300);
                    let mut event = Vec::new();
                    // Without the frames around events that were ready together.
                    while !event.ends_with(b"}\n") {
                        event.push(client.read_u8().await.unwrap());
                    }
                    let event = String::from_utf8(event).unwrap();
                    assert!(event.ends_with(&expected), "{event}");
                }
            })
        })
        .collect();
    let comes_and_goes: Vec<_> = (0..4)
        .map(|task| {
            let (shards, cache) = (shards.clone(), world.cache.clone());
            spawn("clients", async move {
                for number in 0..200 {
                    let (watch, mut client) = start(&shards, body(watch(&cache, WatchStart::Now)), 2_000);
                    if (number + task) % 3 > 0 {
                        timeout(Duration::from_millis(2), client.read_u8()).await.ok();
                    }
                    if number % 2 == 0 {
                        drop(client);
                    }
                    drop(watch);
                }
            })
        })
        .collect();
    for number in 0..EVENTS {
        world.add(FIRST + number, 300).await;
        if number % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for task in stays.into_iter().chain(comes_and_goes) {
        timeout(LONG, task).await.unwrap().unwrap();
    }
    until(|| sizes(&shards).is_empty()).await;
    assert_eq!(world.cache.stats().watchers, 0);
}

/// The sockets take everything, and the bodies always have more.
#[tokio::test]
async fn watches_that_use_up_their_turns_take_turns() {
    for count in [2, 3, 4, 20] {
        let shards = WatchShards::default();
        let got: Vec<_> = (0..count).map(|_| Arc::<AtomicUsize>::default()).collect();
        let io = |got| Bounded::new(counted(Arc::clone(got), false), STALL, Arc::default(), None);
        let writers = got.iter().map(|got| WatchWriter::new(io(got), large(usize::MAX), Vec::new()));
        let watches: Vec<_> = writers.map(|writer| shards.run(writer)).collect();
        let each = || got.iter().map(|got| got.load(Ordering::Relaxed)).collect::<Vec<_>>();
        while each().iter().sum::<usize>() < 80 << 20 {
            tokio::task::yield_now().await;
        }
        let (each, mean) = (each(), each().iter().sum::<usize>() / count);
        assert!(each.iter().all(|got| *got >= mean / 2), "of {count} watches: {each:?}");
        drop(watches);
        until(|| sizes(&shards).is_empty()).await;
    }
}
