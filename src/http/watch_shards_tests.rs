use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body::Frame;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::*;
use crate::cache::WatchStart;
use crate::codec::Slices;
use crate::http::Bounded;
use crate::http::body::Body;
use crate::http::testing::{Counting, FIRST, World, added_text, objects};

const STALL: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(60);

struct Panics;

impl http_body::Body for Panics {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        panic!("on purpose")
    }
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

async fn end(watch: &Sharded<DuplexStream>) -> Result<(), BoxError> {
    timeout(LONG, std::future::poll_fn(|cx| watch.poll(cx))).await.unwrap().map(drop)
}

fn sizes(shards: &WatchShards) -> Vec<usize> {
    shards.0.lock().iter().map(|shard| shard.watches).collect()
}

async fn all_end(shards: &WatchShards) {
    while !sizes(shards).is_empty() {
        tokio::task::yield_now().await;
    }
}

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

#[tokio::test]
async fn each_client_gets_each_event_in_order() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    // Some sockets take an event in several pieces, some at once.
    let mut watches: Vec<_> =
        (0..2 * MOST + 10).map(|number| start(&shards, live(&world), [700, 1 << 20][number % 2])).collect();
    assert_eq!(sizes(&shards), [MOST, MOST, 10]);
    let readers: Vec<_> = watches
        .iter_mut()
        .map(|(_, client)| std::mem::replace(client, duplex(1).0))
        .map(|mut client| {
            spawn("reader", async move {
                let mut text = String::new();
                client.read_to_string(&mut text).await.unwrap();
                text
            })
        })
        .collect();
    for number in 0..20 {
        world.add(FIRST + number, 900).await;
        if number % 3 == 0 {
            tokio::task::yield_now().await;
        }
    }
    world.settle().await;
    world.cache.end_watchers(false);
    for (watch, _) in watches {
        end(&watch).await.unwrap();
    }
    for reader in readers {
        let text = timeout(LONG, reader).await.unwrap().unwrap();
        // Events that were ready together share a chunk.
        let mut rest = text.strip_suffix("0\r\n\r\n").unwrap();
        let mut events = String::new();
        while let Some((len, data)) = rest.split_once("\r\n") {
            let len = usize::from_str_radix(len, 16).unwrap();
            events.push_str(&data[..len]);
            rest = data[len..].strip_prefix("\r\n").unwrap();
        }
        let expected: String = (0..20).map(|number| added_text(FIRST + number, 900)).collect();
        assert!(events == expected);
    }
    all_end(&shards).await;
}

#[tokio::test]
async fn a_place_that_is_free_again_is_used_first() {
    let world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let mut watches: Vec<_> = (0..=MOST).map(|_| start(&shards, live(&world), 64)).collect();
    assert_eq!(sizes(&shards), [MOST, 1]);
    watches.swap_remove(5);
    while sizes(&shards) == [MOST, 1] {
        tokio::task::yield_now().await;
    }
    watches.push(start(&shards, live(&world), 64));
    assert_eq!(sizes(&shards), [MOST, 1]);
    assert_eq!(world.cache.stats().watchers, MOST + 1);
    drop(watches);
    assert_eq!(world.cache.stats().watchers, 0, "a watch ends with its connection at once");
    all_end(&shards).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_up_no_other() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let (_slow, _silent) = start(&shards, live(&world), 64);
    let (_fast, mut client) = start(&shards, live(&world), 1 << 20);
    for number in 0..10 {
        world.add(FIRST + number, 900).await;
        let expected = chunk(&added_text(FIRST + number, 900));
        let mut got = vec![0; expected.len()];
        timeout(LONG, client.read_exact(&mut got)).await.unwrap().unwrap();
        assert!(got == expected.as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_given_up() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let (watch, _silent) = start(&shards, live(&world), 64);
    world.add(FIRST, 900).await;
    assert!(end(&watch).await.unwrap_err().to_string().contains("takes no bytes"));
    all_end(&shards).await;
}

#[tokio::test]
async fn a_panic_ends_one_watch() {
    let mut world = World::new(objects(1, 5)).await;
    let shards = WatchShards::default();
    let (_other, mut client) = start(&shards, live(&world), 1 << 20);
    let (panics, _client) = start(&shards, Body::new(Panics), 64);
    let before = crate::lifecycle::panics();
    assert_eq!(end(&panics).await.unwrap_err().to_string(), "the watch has panicked");
    assert!(crate::lifecycle::panics() > before);
    world.add(FIRST, 5).await;
    let expected = chunk(&added_text(FIRST, 5));
    let mut got = vec![0; expected.len()];
    timeout(LONG, client.read_exact(&mut got)).await.unwrap().unwrap();
    assert!(got == expected.as_bytes());
}

#[tokio::test]
async fn other_tasks_have_their_turn_in_the_middle_of_an_event() {
    let mut world = World::new(objects(1, 5)).await;
    let (shards, writes) = (WatchShards::default(), Arc::<AtomicUsize>::default());
    let watches: Vec<_> = (0..MOST)
        .map(|_| {
            let (client, inner) = duplex(1 << 20);
            let io = Bounded::new(Counting { inner, writes: Arc::clone(&writes) }, STALL, Arc::default(), None);
            (shards.run(WatchWriter::new(io, live(&world), Vec::new())), client)
        })
        .collect();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    world.add(FIRST, 900).await;
    let (written, all) = (Arc::clone(&writes), watches.len());
    let other = spawn("other", async move {
        let (mut largest, mut before) = (0, 0);
        std::future::poll_fn(move |cx| {
            let now = written.load(Ordering::Relaxed);
            largest = largest.max(now - before);
            before = now;
            // At the end of the queue.
            cx.waker().wake_by_ref();
            if now < all { Poll::Pending } else { Poll::Ready(largest) }
        })
        .await
    });
    let largest = other.await.unwrap();
    assert!((2..=MOST / 2).contains(&largest), "{largest}");
    assert_eq!(writes.load(Ordering::Relaxed), MOST, "one system call for each");
}
