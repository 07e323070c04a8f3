use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::Discovery;
use crate::auth::Lease;
use crate::cache::WatchStart;
use crate::http::record::HttpMetrics;
use crate::http::testing::{FIRST, World, added_text, objects, watch_of};
use crate::informer::Factory;
use crate::lifecycle::drain::DrainWatch;
use crate::lifecycle::ending::Ending;
use crate::lifecycle::spawn;
use crate::memory::Ledger;
use crate::meta::{Gvr, ResourceVersion, Scope};
use crate::passthrough::websocket::TEXT;
use crate::reads::{Giver, WatchAnswer};
use crate::selector::{CompiledFields, LabelSelector, Predicate};

/// A frame from a client: it must be masked.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [7, 0, 255, 1];
    let mut frame = head(0, payload.len());
    (frame[0], frame[1]) = (first, frame[1] | MASKED);
    frame.extend_from_slice(&MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn asked(pieces: &[&[u8]]) -> Vec<Reply> {
    let (mut frames, mut asked) = (Frames::default(), Vec::new());
    for mut piece in pieces.iter().copied() {
        while let Some(next) = frames.next(&mut piece) {
            let over = matches!(next, Reply::End(_));
            asked.push(next);
            if over {
                return asked;
            }
        }
        assert!(piece.is_empty() && frames.head.len() < 14);
    }
    asked
}

proptest! {
    /// The bytes may be split anywhere: pings are answered, the first close or protocol error ends the connection, and
    /// everything else is ignored.
    #[test]
    fn what_clients_say(
        said in prop::collection::vec((prop::sample::select(vec![0x80, 0x01, 0x82, 0x83, 0x89, 0x8a, 0x88, 0xff]), 0usize..200), 0..8),
        unmasked in prop::option::of(0usize..8),
        cut in 1usize..50,
    ) {
        let (mut stream, mut expected, mut over) = (Vec::new(), Vec::new(), false);
        for (at, (first, length)) in said.into_iter().enumerate() {
            let payload: Vec<u8> = (0..length).map(|n| (n * 7 + at) as u8).collect();
            let kind = first & 0x0f;
            let mut frame = frame(first, &payload);
            let wrong = unmasked == Some(at);
            if wrong {
                frame[1] &= !MASKED;
            }
            stream.extend_from_slice(&frame);
            match kind {
                _ if over => {}
                _ if wrong => expected.push(Reply::End(Some(1002))),
                CLOSE => expected.push(Reply::End(None)),
                PING => expected.push(Reply::Pong(payload[..length.min(125)].to_vec())),
                _ => {}
            }
            over |= wrong || kind == CLOSE;
        }
        let pieces: Vec<&[u8]> = stream.chunks(cut).collect();
        prop_assert_eq!(asked(&pieces), expected);
    }
}

#[test]
fn messages_that_are_too_long_end_it() {
    let head = |length: u64| [&[0x82, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat();
    assert_eq!(asked(&[&head(32 << 20)]), []);
    assert_eq!(asked(&[&head((32 << 20) + 1)]), [Reply::End(None)]);
    assert_eq!(asked(&[&head(u64::MAX)]), [Reply::End(None)]);
    assert_eq!(asked(&[&head((1 << 63) | 1), b"x"]), []);
}

/// The client of this watch over a socket.
fn session(watch: WatchAnswer, metrics: &Arc<HttpMetrics>) -> DuplexStream {
    session_with(watch, Lease::all([]), metrics)
}

fn session_with(mut watch: WatchAnswer, lease: Lease, metrics: &Arc<HttpMetrics>) -> DuplexStream {
    let ending = Ending::new(&DrainWatch::never(), Duration::ZERO, super::super::watch_body::SHORTEST);
    let rent = watch.rent.take();
    let events = WatchBody::new(watch, lease, None, ending, metrics, &Ledger::default()).into_messages();
    let (client, ours) = duplex(1 << 20);
    spawn("session", run(ours, events, rent));
    client
}

/// A watch that starts after the first state.
async fn open() -> (World, DuplexStream, Arc<HttpMetrics>) {
    let (world, metrics) = (World::new(objects(1, 1)).await, Arc::<HttpMetrics>::default());
    let client = session(world.watch(WatchStart::After(ResourceVersion(FIRST as u64))), &metrics);
    (world, client, metrics)
}

async fn says(client: &mut DuplexStream, expected: &[u8]) {
    let mut said = vec![0; expected.len()];
    client.read_exact(&mut said).await.unwrap();
    assert!(said == expected, "{said:?}");
}

#[tokio::test]
async fn events_are_messages_and_pings_are_answered_between_them() {
    let (mut world, mut client, metrics) = open().await;
    for (number, size) in [(FIRST, 5), (FIRST + 1, 70_000)] {
        world.add(number, size).await;
        let event = added_text(number, size);
        says(&mut client, &[head(TEXT, event.len()), event.into_bytes()].concat()).await;
        client.write_all(&frame(0x89, b"are you there?")).await.unwrap();
        says(&mut client, b"\x8a\x0eare you there?").await;
        client.write_all(&frame(0x81, b"nobody listens")).await.unwrap();
    }
    client.write_all(&frame(0x88, &1000_u16.to_be_bytes())).await.unwrap();
    says(&mut client, b"\x88\x02\x03\xe8").await;
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!((metrics.watch_events.get(), metrics.watches_open.get()), (2, 0));
}

#[tokio::test]
async fn what_is_sent_is_booked() {
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let discovery = Discovery::knowing(upstream.clone(), Vec::new());
    let factory = Factory::simple(Duration::from_secs(600), upstream, discovery);
    let rent = Some(factory.rent(&Gvr::new("", "v1", "configmaps"), Giver::Cache, true));
    let mut world = World::new(objects(1, 1)).await;
    let watch = WatchAnswer { rent, ..world.watch(WatchStart::After(ResourceVersion(FIRST as u64))) };
    let mut client = session(watch, &Arc::default());
    world.add(FIRST, 5).await;
    let event = added_text(FIRST, 5);
    let message = [head(TEXT, event.len()), event.into_bytes()].concat();
    says(&mut client, &message).await;
    assert_eq!(factory.balances()["configmaps"].bytes, i64::try_from(message.len()).unwrap());
}

#[tokio::test]
async fn without_a_confirmed_right_it_is_closed_as_usual() {
    let (mut world, metrics) = (World::new(objects(1, 1)).await, Arc::<HttpMetrics>::default());
    let (unsaid, gone) = tokio::sync::oneshot::channel();
    let watch = world.watch(WatchStart::After(ResourceVersion(FIRST as u64)));
    let mut client = session_with(watch, Lease::until(gone), &metrics);
    world.add(FIRST, 5).await;
    let event = added_text(FIRST, 5);
    says(&mut client, &[head(TEXT, event.len()), event.into_bytes()].concat()).await;
    drop(unsaid);
    says(&mut client, b"\x88\x02\x03\xe8").await;
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert_eq!((metrics.watch_events.get(), metrics.watches_failed.get()), (1, 0));
}

#[tokio::test]
async fn a_mistake_is_told_before_the_end() {
    let (_world, mut client, _) = open().await;
    client.write_all(b"\x81\x01x").await.unwrap();
    says(&mut client, b"\x88\x02\x03\xea\x88\x02\x03\xe8").await;
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
}

/// A watch that looks at many objects and selects none of them.
#[tokio::test]
async fn other_tasks_run_while_it_looks() {
    const OBJECTS: usize = 20_000;
    let world = World::new(objects(OBJECTS, 1)).await;
    let labels = LabelSelector::parse("no=such").unwrap();
    let none = Predicate::new(Scope::default(), labels, CompiledFields::default());
    let mut client = session(watch_of(&world.cache, WatchStart::State, none), &Arc::default());
    let other = spawn("other", async move {
        let (mut turns, mut first) = (0, [0]);
        let mut read = pin!(client.read(&mut first));
        poll_fn(|cx| {
            turns += 1;
            cx.waker().wake_by_ref();
            read.as_mut().poll(cx)
        })
        .await
        .unwrap();
        turns
    });
    let turns = other.await.unwrap();
    assert!(turns >= OBJECTS / 2048, "{turns} turns until the end of the initial events");
}
