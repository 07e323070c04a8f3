//! Objects and events that are larger than the limit, in JSON and in protobuf, more deletions than are held back, and how long others
//! may follow.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::follow::DOUBT;
use super::given_up_tests::soon;
use super::scripted_tests::{Open, gone, list, names, scripted, scripted_with, world};
use super::tests::{SOON, World, config, lister, reflect};
use super::*;
use crate::apiserver::testing::{Body, FakeServer, answer, ticks, until};
use crate::cache::EndReason;
use crate::codec::Format;

const BOTH: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

/// What the object is made of, at revision 11.
const MEMBERS: &str =
    r#""metadata":{"name":"large","namespace":"default","uid":"u","resourceVersion":"11"},"data":{"k":"some text"}"#;

/// A message of these fields.
fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(number, bytes)| prost::encoding::bytes::encode(*number, &bytes.to_vec(), &mut out));
    out
}

/// In the envelope of this kind.
fn enveloped(kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = message(&[(1, b"v1"), (2, kind.as_bytes())]);
    [b"k8s\0", &message(&[(1, &type_meta), (2, object), (3, b""), (4, b"")])[..]].concat()
}

/// The object as an item of a list.
fn item(encoding: Encoding) -> Vec<u8> {
    if encoding == Encoding::Json {
        return format!("{{{MEMBERS}}}").into();
    }
    let metadata = message(&[(1, b"large"), (3, b"default"), (5, b"u"), (6, b"11")]);
    message(&[(1, &metadata), (2, &message(&[(1, b"k"), (2, b"some text")]))])
}

/// The event that adds it, and the same with what separates it from others.
fn frame(encoding: Encoding) -> (Vec<u8>, Bytes) {
    if encoding == Encoding::Json {
        let event = format!(r#"{{"type":"ADDED","object":{{"kind":"ConfigMap","apiVersion":"v1",{MEMBERS}}}}}"#);
        return (event.clone().into(), format!("{event}\n").into());
    }
    let raw = message(&[(1, &enveloped("ConfigMap", &item(encoding)))]);
    let event = message(&[(1, b"ADDED"), (2, &raw)]);
    let length = u32::try_from(event.len()).unwrap().to_be_bytes();
    (event.clone(), [&length[..], &event].concat().into())
}

/// A list with the object at revision 11, or without it at 10.
fn listed(encoding: Encoding, has_it: bool) -> Vec<u8> {
    let rv = if has_it { "11" } else { "10" };
    let item = has_it.then(|| item(encoding));
    if encoding == Encoding::Json {
        let items = item.map_or_else(String::new, |item| String::from_utf8(item).unwrap());
        let head = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"#;
        return format!(r#"{head}"{rv}"}},"items":[{items}]}}"#).into();
    }
    let metadata = message(&[(2, rv.as_bytes())]);
    let fields = [Some((1_u32, &metadata[..])), item.as_deref().map(|item| (2, item))];
    enveloped("ConfigMapList", &message(&fields.into_iter().flatten().collect::<Vec<_>>()))
}

fn typed(encoding: Encoding, mut response: http::Response<Body>) -> http::Response<Body> {
    let of = HeaderValue::from_static(Format::media_type(encoding, false));
    response.headers_mut().insert(CONTENT_TYPE, of);
    response
}

/// A server in whose lists, and watches from before it, the object is while it is there. Lists of one object do not show it.
async fn server(encoding: Encoding, is_there: &Arc<AtomicBool>, open: &Open) -> FakeServer {
    let (in_lists, in_watches, streams) = (Arc::clone(is_there), Arc::clone(is_there), open.clone());
    let lists = move |query: String| {
        let has_it = in_lists.load(Ordering::Relaxed) && query.starts_with("limit=500");
        typed(encoding, answer(200, listed(encoding, has_it)))
    };
    scripted_with(lists, move |query| {
        let has_it = in_watches.load(Ordering::Relaxed) && query.contains("resourceVersion=10&");
        typed(encoding, if has_it { streams.watch_with(query, frame(encoding).1) } else { streams.watch(query) })
    })
    .await
}

/// A reflector with this limit.
async fn limited(server: &FakeServer, encoding: Encoding, max_object: usize) -> World {
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let lister = ListerWatcher { encoding, ..lister("", "configmaps", "ConfigMap") };
    reflect(upstream, lister, ReflectorConfig { max_object, ..soon() })
}

/// It has no state, and says why.
async fn is_given_up(world: &World, encoding: Encoding, limit: usize) {
    let status = world.until(|status| status.undecodable && status.state == "refused").await;
    assert!(world.cache.snapshot().is_none() && world.handle.has_given_up() && !world.handle.is_too_large());
    let error = status.last_error.unwrap();
    assert!(error.contains(&format!("larger than {limit} bytes")), "{encoding:?}: {error}");
    // In protobuf, so much of it may not have arrived.
    assert!(encoding == Encoding::Protobuf || error.contains("\"default/large\""), "{error}");
}

#[tokio::test]
async fn a_list_with_an_object_beyond_the_limit_is_given_up() {
    for encoding in BOTH {
        let limit = item(encoding).len();
        for (limit, fits) in [(limit, true), (limit - 1, false)] {
            let server = server(encoding, &Arc::new(AtomicBool::new(true)), &Open::default()).await;
            let world = limited(&server, encoding, limit).await;
            if fits {
                world.follows().await;
                assert_eq!(names(&world.cache), ["large"], "{encoding:?}");
            } else {
                is_given_up(&world, encoding, limit).await;
                assert!(!world.handle.status().synced);
            }
        }
    }
}

#[tokio::test]
async fn an_event_beyond_the_limit_ends_the_watches() {
    for encoding in BOTH {
        let limit = frame(encoding).0.len();
        for (limit, fits) in [(limit, true), (limit - 1, false)] {
            let (is_there, open) = (Arc::new(AtomicBool::new(false)), Open::default());
            let server = server(encoding, &is_there, &open).await;
            let world = limited(&server, encoding, limit).await;
            world.follows().await;
            let mut watcher = world.watcher();
            is_there.store(true, Ordering::Relaxed);
            open.all().last().unwrap().try_send(frame(encoding).1).unwrap();
            if fits {
                world.cache.wait_for(ResourceVersion(11), Instant::now() + SOON).await.unwrap();
                assert_eq!((world.handle.status().restarts, world.handle.status().relists), (0, 0), "{encoding:?}");
            } else {
                is_given_up(&world, encoding, limit).await;
                assert!(watcher.next().await.is_none() && watcher.end_reason() == Some(EndReason::NotReady));
                // As an item, it is shorter.
                world.follows().await;
            }
            assert_eq!((names(&world.cache), world.handle.has_given_up()), (vec!["large".to_owned()], false));
        }
    }
}

/// All of one revision are applied together, but no more of them are held than the bound. Those beyond it are only in a list.
#[tokio::test]
async fn more_deletions_than_are_held_back_lead_to_a_list() {
    let all: Vec<_> = (0..4096 + 1).map(|number| format!("e{number}")).collect();
    let (there, are_gone) = (all.clone(), Arc::new(AtomicBool::new(false)));
    let none_are_left = Arc::clone(&are_gone);
    let (server, open) = scripted(move |query| {
        let (rv, all) = if none_are_left.load(Ordering::Relaxed) { (30, &[][..]) } else { (10, &there[..]) };
        let all: Vec<_> = all.iter().filter(|_| query.starts_with("limit=500")).map(String::as_str).collect();
        answer(200, list(rv, "", &all))
    })
    .await;
    let world = world(&server, "events", "Event", config()).await;
    world.follows().await;
    are_gone.store(true, Ordering::Relaxed);
    let (_, sender) = open.last();
    for some in all.chunks(512) {
        sender.send(some.iter().map(|name| gone(name, 20)).collect::<String>().into()).await.unwrap();
    }
    until(|| names(&world.cache).is_empty()).await;
    let status = world.handle.status();
    assert!(status.events >= 1 && status.relists == 1, "{status:?}");
}

/// However long the next stream says nothing, the one before may have been about to tell others.
#[tokio::test(start_paused = true)]
async fn a_doubt_about_deletions_ends_on_a_stream_that_has_told_them() {
    ticks();
    for _ in 0..10 {
        let (server, open) = scripted(|_| answer(200, list(10, "", &["a", "b"]))).await;
        let world = world(&server, "events", "Event", config()).await;
        world.follows().await;
        let (_, first) = open.last();
        first.send(gone("a", 20).into()).await.unwrap();
        until(|| names(&world.cache) == ["b"]).await;
        drop(first);
        until(|| !open.all().is_empty()).await;
        let (query, next) = open.last();
        if query.contains("resourceVersion=20&") {
            // On a slow machine, the first stream may last until its own doubt has ended.
            continue;
        }
        let is_told = || world.cache.stats().dispatched_rv >= ResourceVersion(20);
        tokio::time::sleep(2 * DOUBT).await;
        assert!(!is_told());
        next.send(gone("a", 20).into()).await.unwrap();
        until(is_told).await;
        return;
    }
    panic!("no stream broke in time");
}
