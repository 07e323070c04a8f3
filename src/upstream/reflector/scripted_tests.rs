//! Tests with scripted servers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::follow::{DOUBT, LATE, TOGETHER};
use super::tests::{SOON, World, config, lister, reflect};
use super::*;
use crate::apiserver::testing::{Body, FakeServer, answer, streamed, ticks, until};
use crate::cache::{self, WatchCache};
use crate::codec::Shape;
use crate::meta::{Encoding, Origin, Resource, Scope, Status};

/// A list of configmaps as an apiserver would write it.
pub(super) fn list(rv: u64, token: &str, names: &[&str]) -> String {
    let items: Vec<_> = names
        .iter()
        .map(|name| {
            format!(r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{name}","resourceVersion":"1"}}}}"#)
        })
        .collect();
    let token = if token.is_empty() { String::new() } else { format!(r#","continue":"{token}""#) };
    format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{rv}"{token}}},"items":[{}]}}"#,
        items.join(",")
    )
}

/// The answer of a server that does not support watch-lists.
fn no_watch_lists() -> http::Response<Body> {
    answer(422, Status::failure(422, "Invalid", "sendInitialEvents is forbidden").to_json())
}

/// The watch is from a revision that is too old.
pub(super) const EXPIRED: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Expired\",\"code\":410}}\n";

pub(super) fn names(cache: &WatchCache) -> Vec<String> {
    let snapshot = cache.snapshot().unwrap();
    snapshot.range(&Scope::all(), None).map(|object| object.key.name().to_owned()).collect()
}

/// The query of a watch, and its stream.
type Watch = (String, mpsc::Sender<Bytes>);

/// Watches that are open.
#[derive(Clone, Default)]
pub(super) struct Open(Arc<Mutex<Vec<Watch>>>);

impl Open {
    pub(super) fn watch(&self, query: &str) -> http::Response<Body> {
        let (sender, response) = streamed();
        self.0.lock().push((query.to_owned(), sender));
        response
    }

    /// A watch that begins with these frames.
    pub(super) fn watch_with(&self, query: &str, frames: impl Into<Bytes>) -> http::Response<Body> {
        let response = self.watch(query);
        self.all().last().unwrap().try_send(frames.into()).unwrap();
        response
    }

    pub(super) fn last(&self) -> Watch {
        self.0.lock().pop().unwrap()
    }

    pub(super) fn all(&self) -> Vec<mpsc::Sender<Bytes>> {
        self.0.lock().iter().map(|(_, sender)| sender.clone()).collect()
    }
}

/// A server with scripted lists that refuses watch-lists. Watches stay open.
pub(super) async fn scripted<F>(lists: F) -> (FakeServer, Open)
where
    F: Fn(String) -> http::Response<Body> + Send + Sync + 'static,
{
    let open = Open::default();
    let watches = open.clone();
    (scripted_with(lists, move |query| watches.watch(query)).await, open)
}

/// The same with scripted watches.
pub(super) async fn scripted_with<F, G>(lists: F, watches: G) -> FakeServer
where
    F: Fn(String) -> http::Response<Body> + Send + Sync + 'static,
    G: Fn(&str) -> http::Response<Body> + Send + Sync + 'static,
{
    served(lists, move |query| if query.contains("sendInitialEvents") { no_watch_lists() } else { watches(query) })
        .await
}

/// The same with scripted watch-lists.
async fn served<F, G>(lists: F, watches: G) -> FakeServer
where
    F: Fn(String) -> http::Response<Body> + Send + Sync + 'static,
    G: Fn(&str) -> http::Response<Body> + Send + Sync + 'static,
{
    FakeServer::plain(move |request, _| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        std::future::ready(if query.contains("watch=true") { watches(&query) } else { lists(query) })
    })
    .await
}

/// A reflector of this resource before a server.
pub(super) async fn world(server: &FakeServer, name: &str, kind: &str, config: ReflectorConfig) -> World {
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    reflect(upstream, lister("", name, kind), config)
}

pub(super) async fn config_maps(server: &FakeServer) -> World {
    world(server, "configmaps", "ConfigMap", config()).await
}

pub(super) fn added(name: &str, rv: u64) -> String {
    let metadata = format!(r#"{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":"{rv}"}}"#);
    let object = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#);
    format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n")
}

/// The event of an object that is deleted at this revision.
pub(super) fn gone(name: &str, rv: u64) -> String {
    let metadata = format!(r#"{{"name":"{name}","namespace":"default","uid":"{name}","resourceVersion":"{rv}"}}"#);
    let object = format!(r#"{{"kind":"Event","apiVersion":"v1","metadata":{metadata}}}"#);
    format!("{{\"type\":\"DELETED\",\"object\":{object}}}\n")
}

#[tokio::test]
async fn lists_are_asked_compressed_and_watches_plain() {
    use std::io::Write as _;
    let (server, _open) = scripted(|query| {
        let body = if query.starts_with("limit=1") { list(10, "", &[]) } else { list(10, "", &["a", "b", "c"]) };
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body.as_bytes()).unwrap();
        let mut response = answer(200, encoder.finish().unwrap());
        response.headers_mut().insert("content-encoding", http::HeaderValue::from_static("gzip"));
        response
    })
    .await;
    let world = config_maps(&server).await;
    world.follows().await;
    assert_eq!(names(&world.cache), ["a", "b", "c"]);
    for seen in server.requests() {
        let wanted = if seen.uri.contains("watch=true") { "identity" } else { "gzip" };
        assert_eq!(seen.headers["accept-encoding"], wanted, "{}", seen.uri);
    }
}

#[tokio::test]
async fn a_list_that_is_behind_is_not_taken() {
    // The first whole list is at 100. After a 410, one apiserver is behind: it lists at 90, and returns 100 when asked
    // again.
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let (server, open) = scripted(move |query| match query.starts_with("limit=1") {
        true => answer(200, list(100, "", &[])),
        false => match count.fetch_add(1, Ordering::Relaxed) {
            0 => answer(200, list(100, "", &["a", "b"])),
            1 => answer(200, list(90, "", &["a"])),
            _ => answer(200, list(120, "", &["a", "b", "c"])),
        },
    })
    .await;
    let world = config_maps(&server).await;
    world.follows().await;
    let (_, sender) = open.last();
    // Some time after the list that this event expires.
    sleep(Duration::from_millis(20)).await;
    sender.send(EXPIRED.into()).await.unwrap();
    world.until(|status| status.relists == 1).await;
    assert_eq!(names(&world.cache), ["a", "b", "c"]);
    assert_eq!((world.handle.status().rewinds, lists.load(Ordering::Relaxed)), (0, 3));
    assert_eq!(world.cache.resource_version().0, 120);
}

#[tokio::test]
async fn events_that_expire_together_are_deleted_together() {
    let (server, open) = scripted(|query| match query.starts_with("limit=1") {
        true => answer(200, list(130, "", &[])),
        false => answer(200, list(100, "", &["a", "b", "c", "d", "e", "f"])),
    })
    .await;
    let world = world(&server, "events", "Event", config()).await;
    world.follows().await;
    let (_, sender) = open.last();
    // In chunks, and one event twice.
    let text =
        [gone("a", 110), gone("b", 110), gone("b", 110), gone("c", 110), gone("d", 120), gone("e", 120)].concat();
    for piece in text.as_bytes().chunks(50) {
        sender.send(piece.to_vec().into()).await.unwrap();
    }
    world.cache.wait_for(ResourceVersion(110), Instant::now() + SOON).await.unwrap();
    assert!(!names(&world.cache).iter().any(|name| ["a", "b", "c"].contains(&&**name)), "{:?}", names(&world.cache));
    // The last deletions do not wait forever for others.
    world.cache.wait_for(ResourceVersion(120), Instant::now() + SOON).await.unwrap();
    assert_eq!(names(&world.cache), ["f"]);
    // Deletions that are held back when the stream ends arrive again.
    sender.send(gone("f", 130).into()).await.unwrap();
    drop(sender);
    world.until(|status| status.restarts == 1 && status.state == "follow").await;
    assert_eq!(names(&world.cache), ["f"]);
    assert_eq!((world.cache.resource_version(), world.handle.status().relists), (ResourceVersion(120), 0));
}

/// The stream breaks after some deletions of a revision, and the others are late.
#[tokio::test]
async fn deletions_that_may_not_be_all_are_asked_for_again() {
    for (again, left, relists) in [(vec!["a", "b"], vec!["c", "d"], 0), (vec!["a", "b", "c"], vec!["d"], 1)] {
        let (state, lists) = (left.clone(), AtomicUsize::new(0));
        let (server, open) = scripted(move |query| match query.starts_with("limit=1") {
            true => answer(200, list(130, "", &[])),
            false if lists.fetch_add(1, Ordering::SeqCst) == 0 => answer(200, list(100, "", &["a", "b", "c", "d"])),
            false => answer(200, list(130, "", &state)),
        })
        .await;
        let world = world(&server, "events", "Event", config()).await;
        world.follows().await;
        let (_, sender) = open.last();
        sender.send([gone("a", 120), gone("b", 120)].concat().into()).await.unwrap();
        world.cache.wait_for(ResourceVersion(120), Instant::now() + SOON).await.unwrap();
        drop(sender);
        world.until(|status| status.restarts == 1 && status.state == "follow").await;
        let (query, sender) = open.last();
        assert!(query.contains("resourceVersion=119&"), "{query}");
        let text: Vec<_> = again.iter().map(|name| gone(name, 120)).collect();
        let bookmark = r#"{"kind":"Event","apiVersion":"v1","metadata":{"resourceVersion":"125"}}"#;
        let bookmark = format!("{{\"type\":\"BOOKMARK\",\"object\":{bookmark}}}\n");
        sender.send((text.concat() + &bookmark).into()).await.unwrap();
        // By the bookmark, or by the list.
        world.cache.wait_for(ResourceVersion(125), Instant::now() + SOON).await.unwrap();
        world.until(|status| status.relists == relists && status.state == "follow").await;
        assert_eq!(names(&world.cache), left);
    }
}

#[tokio::test]
async fn the_scope_is_part_of_every_request() {
    let (server, _open) = scripted(|_| answer(200, list(10, "", &["a"]))).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let lister = ListerWatcher {
        namespace: Some("web".into()),
        label_selector: "app=a".into(),
        field_selector: "metadata.name=x".into(),
        ..lister("", "configmaps", "ConfigMap")
    };
    let meter = Arc::clone(&lister.meter);
    reflect(upstream, lister, config()).follows().await;
    assert!(meter.asked().requests >= 2 && meter.asked().wire > 0, "{meter:?}");
    assert_eq!(meter.prices().plain(1), 4 << 10, "one object is no measure of others");
    for uri in server.uris() {
        assert!(uri.starts_with("/api/v1/namespaces/web/configmaps?"), "{uri}");
        assert!(uri.contains("labelSelector=app%3Da") && uri.contains("fieldSelector=metadata.name%3Dx"), "{uri}");
    }
}

/// A protobuf reflector, some moments after its start, with a server that gives this answer to everything.
async fn of_protobuf(answers: impl Fn() -> http::Response<Body> + Send + Sync + 'static) -> Handle {
    let server = FakeServer::plain(move |_, _| std::future::ready(answers())).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let lister = ListerWatcher { encoding: Encoding::Protobuf, ..lister("", "configmaps", "ConfigMap") };
    let world = reflect(upstream, lister, config());
    world.until(|status| status.failing.is_some()).await;
    sleep(Duration::from_millis(100)).await;
    world.handle.clone()
}

#[tokio::test]
async fn what_a_server_speaks_is_learnt_from_answers_that_make_sense() {
    let refusal = || answer(406, Status::failure(406, "NotAcceptable", "only JSON").to_json());
    for (what, learnt, handle) in [
        ("a whole list", true, of_protobuf(|| answer(200, list(10, "", &["a"]))).await),
        ("a refusal with a reason", true, of_protobuf(refusal).await),
        ("nothing", false, of_protobuf(|| answer(200, "")).await),
        ("half a list", false, of_protobuf(|| answer(200, list(10, "", &["a"]).split_at(60).0.to_owned())).await),
        ("a page for people", false, of_protobuf(|| answer(406, "<html>not acceptable</html>")).await),
        ("a list of nothing", false, of_protobuf(|| answer(200, "{}")).await),
    ] {
        assert_eq!(handle.is_unacceptable(), learnt, "{what}: {:?}", handle.status().last_error);
        let refuses = if learnt { vec!["encoding"] } else { Vec::new() };
        assert_eq!(handle.status().refuses(), refuses, "{what}");
    }
}

/// Some aggregated API servers write the type into each item of a list. Events have it always.
#[tokio::test]
async fn lists_show_the_type_of_items_where_the_server_does() {
    let metadata = r#""metadata":{"name":"a","namespace":"default","uid":"a","resourceVersion":"15"}}"#;
    let typed = format!(r#"{{"kind":"Widget","apiVersion":"x.io/v1",{metadata}"#);
    for (item, is_filled) in
        [&typed, &format!("{{{metadata}")].into_iter().flat_map(|item| [(item, true), (item, false)])
    {
        let state = Arc::new(Mutex::new((15, item.clone())));
        let listed = Arc::clone(&state);
        if !is_filled {
            *state.lock() = (10, String::new());
        }
        let (server, open) = scripted(move |_| {
            let (rv, items) = listed.lock().clone();
            let head = r#"{"kind":"WidgetList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"#;
            answer(200, format!(r#"{head}"{rv}"}},"items":[{items}]}}"#))
        })
        .await;
        let widgets = Resource { origin: Origin::Unknown, ..Resource::simple("x.io", "widgets", "Widget") };
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let world = reflect(upstream, ListerWatcher::of(Arc::new(widgets)), config());
        world.follows().await;
        let (_, watch) = open.last();
        if !is_filled {
            *state.lock() = (15, item.clone());
            watch.send(format!(r#"{{"type":"ADDED","object":{typed}}}{}"#, "\n").into()).await.unwrap();
        }
        world.cache.wait_for(ResourceVersion(15), Instant::now() + SOON).await.unwrap();
        let (form, snapshot, all) = (world.cache.form().unwrap(), world.cache.snapshot().unwrap(), Scope::all());
        let object = snapshot.range(&all, None).next().unwrap();
        assert_eq!(form.list_item(object, Shape::Full, true).unwrap().into_bytes(), *item, "{is_filled}");
        assert_eq!(form.object(object, None, Shape::Full).unwrap().into_bytes(), typed);
    }
}

/// Whichever server refuses, the state has to come from somewhere.
#[tokio::test]
async fn watch_lists_that_are_refused_without_a_reason_become_lists() {
    let open = Open::default();
    let lists = |_| answer(200, list(10, "", &["a"]));
    let server = served(lists, move |query| match query.contains("sendInitialEvents") {
        true => answer(400, "bad request"),
        false => open.watch(query),
    })
    .await;
    let world = config_maps(&server).await;
    world.follows().await;
    assert_eq!(names(&world.cache), ["a"]);
    assert_eq!(server.uris().iter().filter(|uri| uri.contains("sendInitialEvents")).count(), 3);
}

/// A refusal by a proxy before the apiserver says nothing about permissions either.
#[tokio::test]
async fn a_refusal_without_a_reason_is_not_the_apiservers() {
    let handle = of_protobuf(|| answer(403, "blocked by the firewall")).await;
    assert!(!handle.is_forbidden(), "{:?}", handle.status());
    let handle = of_protobuf(|| answer(403, Status::failure(403, "Forbidden", "no").to_json())).await;
    assert!(handle.is_forbidden());
    assert_eq!(handle.status().refuses(), ["resource"]);
}

#[tokio::test(start_paused = true)]
async fn deletions_of_one_revision_wait_for_no_claims() {
    ticks();
    let (server, open) = scripted(|_| answer(200, list(10, "", &["a", "b", "c"]))).await;
    let world = world(&server, "events", "Event", config()).await;
    world.follows().await;
    let (_, sender) = open.last();
    sender.send([gone("a", 20), gone("b", 20)].concat().into()).await.unwrap();
    // Claims from a revision that the cache has not reached change nothing. They come more often than such deletions wait.
    let gone = async {
        while names(&world.cache) != ["c"] {
            let claim = Progress { from: ResourceVersion(500), to: ResourceVersion(501), asked: cache::Order::now() };
            world.claims.send(claim).await.unwrap();
            sleep(TOGETHER / 10).await;
        }
    };
    timeout(SOON, gone).await.expect("the deletions are applied while claims come");
    // Others of their revision may still come, so a claim from there is not taken either.
    let claim = Progress { from: ResourceVersion(20), to: ResourceVersion(30), asked: cache::Order::now() };
    world.claims.send(claim).await.unwrap();
    let taken = async {
        while world.claims.capacity() < CLAIMS {
            sleep(TOGETHER / 10).await;
        }
    };
    timeout(SOON, taken).await.expect("the claim is read");
    assert_eq!(world.cache.resource_version(), ResourceVersion(20));
    // Neither watches nor what is kept for a restart claim their revision.
    until(|| world.cache.stats().dispatched_rv == ResourceVersion(19)).await;
    assert_eq!(world.cache.record().unwrap().0.read(9).unwrap().rv, None);
    // Time that has passed at once shows nothing: the stream is not read yet.
    for (late, dispatched) in [(2 * LATE, 19), (LATE / 2, 20)] {
        tokio::time::advance(DOUBT + late).await;
        sleep(TOGETHER).await;
        assert_eq!(world.cache.stats().dispatched_rv, ResourceVersion(dispatched), "{late:?}");
    }
}

/// What was missed may lie before the revision that the cache had reached. The list shows it, and no watch does.
#[tokio::test]
async fn clients_do_not_continue_from_before_what_contradicts_the_stream() {
    let bookmark = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"80"}}"#;
    let bookmark = format!("{{\"type\":\"BOOKMARK\",\"object\":{bookmark}}}\n");
    for (told, lacks_after) in [(Some(added("y", 90)), 89), (Some(bookmark), 80), (None, 0)] {
        let lists = AtomicUsize::new(0);
        let (server, open) = scripted(move |query| match query.starts_with("limit=1") {
            true => answer(200, list(120, "", &[])),
            false if lists.fetch_add(1, Ordering::SeqCst) == 0 => answer(200, list(100, "", &["a", "x"])),
            false => answer(200, list(120, "", &["a"])),
        })
        .await;
        let world = config_maps(&server).await;
        world.follows().await;
        match told {
            Some(told) => open.last().1.send(told.into()).await.unwrap(),
            None => {
                until(|| {
                    let (why, at) = ("a digest".to_owned(), world.handle.position());
                    world.handle.is_silent(Silence { why, at, missed: true });
                    world.handle.status().relists == 1
                })
                .await;
            }
        }
        world.until(|status| status.relists == 1 && status.state == "follow").await;
        assert_eq!(names(&world.cache), ["a"]);
        let inside = [lacks_after, lacks_after + 1, 119, 120].map(|rv| world.cache.is_inside_gap(ResourceVersion(rv)));
        assert_eq!(inside, [false, true, true, false], "{lacks_after}");
    }
}

/// Clients that have only the first ones must not continue from their revision.
#[tokio::test]
async fn deletions_of_one_revision_that_come_apart_leave_a_gap() {
    let deleted = Arc::new(AtomicUsize::new(0));
    let shown = Arc::clone(&deleted);
    let (server, open) = scripted(move |_| match shown.load(Ordering::Acquire) {
        0 => answer(200, list(10, "", &["a", "b", "c"])),
        _ => answer(200, list(20, "", &["c"])),
    })
    .await;
    let world = world(&server, "events", "Event", config()).await;
    world.follows().await;
    let (_, sender) = open.last();
    sender.send(gone("a", 11).into()).await.unwrap();
    until(|| names(&world.cache) == ["b", "c"]).await;
    deleted.store(1, Ordering::Release);
    sender.send(gone("b", 11).into()).await.unwrap();
    until(|| names(&world.cache) == ["c"]).await;
    assert!(world.cache.is_inside_gap(ResourceVersion(11)) && !world.cache.is_inside_gap(ResourceVersion(10)));
}

/// A server from before KEP-3157, for which `sendInitialEvents` is no parameter: it sends its objects and no bookmark.
#[tokio::test]
async fn a_server_that_ignores_watch_lists_is_known_after_its_first_answer() {
    let hour = Duration::from_secs(3600);
    let patient = ReflectorConfig { initial_idle: hour, ..config() };
    for names_of in [&["a", "b"][..], &[]] {
        let open = Open::default();
        let lists = move |_| answer(200, list(10, "", names_of));
        let server = served(lists, move |query| match query.contains("sendInitialEvents") {
            true => open.watch_with(query, names_of.iter().map(|name| added(name, 1)).collect::<String>()),
            false => open.watch(query),
        })
        .await;
        let world = world(&server, "configmaps", "ConfigMap", patient.clone()).await;
        world.follows().await;
        assert_eq!(names(&world.cache), names_of);
        // The server may only have been late, so other resources of the group are asked for by watch-lists.
        let upstream = &world.upstream;
        let before = upstream.metrics().total(RequestVerb::WatchList, None);
        let other = reflect(upstream.clone(), lister("", "pods", "Pod"), patient.clone());
        other.follows().await;
        assert_eq!((before, upstream.metrics().total(RequestVerb::WatchList, None)), (1, 2));
        // An aggregated server is not asked at all.
        let unknown = Resource { origin: Origin::Unknown, ..Resource::simple("own.example.com", "things", "Thing") };
        reflect(upstream.clone(), ListerWatcher::of(Arc::new(unknown)), patient.clone()).follows().await;
        assert_eq!(upstream.metrics().total(RequestVerb::WatchList, None), 2);
    }
}

/// The control plane is set back, together with its version.
#[tokio::test]
async fn a_server_that_ignores_watch_lists_after_a_rewind_is_known_soon() {
    let patient = ReflectorConfig { initial_idle: Duration::from_secs(3600), ..config() };
    let (open, is_old) = (Open::default(), Arc::new(AtomicBool::new(false)));
    let (streams, lists_old, sends_old) = (open.clone(), Arc::clone(&is_old), Arc::clone(&is_old));
    let lists =
        move |_| answer(200, if lists_old.load(Ordering::Relaxed) { list(10, "", &["a"]) } else { list(100, "", &[]) });
    let server = served(lists, move |query| {
        let end = r#"{"resourceVersion":"100","annotations":{"k8s.io/initial-events-end":"true"}}"#;
        match (query.contains("sendInitialEvents"), sends_old.load(Ordering::Relaxed)) {
            (false, _) => streams.watch(query),
            (true, true) => streams.watch_with(query, added("a", 1)),
            (true, false) => {
                streams.watch_with(query, format!("{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{end}}}}}\n"))
            }
        }
    })
    .await;
    let world = world(&server, "configmaps", "ConfigMap", patient).await;
    world.follows().await;
    is_old.store(true, Ordering::Relaxed);
    open.0.lock().clear();
    world.until(|status| status.rewinds == 1 && status.state == "follow").await;
    assert_eq!(names(&world.cache), ["a"]);
}
