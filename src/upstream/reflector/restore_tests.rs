//! A saved state is served when the apiserver has accepted a watch from its revision, and not before.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::given_up_tests::soon;
use super::scripted_tests::{EXPIRED, Open, added, list, names, scripted_with};
use super::tests::{config, lister, reflect_into};
use super::*;
use crate::apiserver::testing::{Body, FakeServer, answer, streamed, until};
use crate::cache::CacheConfig;
use crate::codec::Form;
use crate::codec::json::Style;
use crate::meta::{AttributesBuilder, Encoding, Raw};

const SAVED: u64 = 100;

/// Two objects at revision 100, after a number of errors.
fn saved(mut errors: usize) -> LoadSaved {
    Box::new(move |mut restoration: Restoration| {
        let error = errors > 0;
        errors = errors.saturating_sub(1);
        for name in ["one", "two"] {
            let attributes = AttributesBuilder::new(name).build();
            let text = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}},");
            let raw = Raw::new(text.into(), 12..26, 0..0);
            let object = Object::new(ObjectKey::new("a", name), ResourceVersion(50), attributes, raw);
            restoration.insert(object).unwrap();
        }
        restoration.begin(ResourceVersion(SAVED), 2).unwrap();
        restoration.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "ConfigMap", "ConfigMapList"));
        Box::pin(std::future::ready(if error {
            Err(UpstreamError::Timeout { what: "the cluster", after: Duration::ZERO })
        } else {
            Ok(Some(restoration))
        }))
    })
}

/// A server at this revision. `watch` answers watches from the saved revision; a list shows one other object.
async fn server(rv: u64, watch: impl Fn() -> http::Response<Body> + Send + Sync + 'static) -> FakeServer {
    let open = Open::default();
    let lists = move |_| answer(200, list(rv, "", &["other"]));
    scripted_with(lists, move |query| match query.contains(&format!("resourceVersion={SAVED}&")) {
        true => watch(),
        false => open.watch(query),
    })
    .await
}

/// Requests that read a whole state.
fn states(server: &FakeServer) -> usize {
    let uris = server.uris();
    let is_state = |uri: &&String| uri.contains("sendInitialEvents") || uri.contains("limit=500");
    uris.iter().filter(is_state).count()
}

async fn reflect(server: &FakeServer, config: ReflectorConfig, saved: LoadSaved) -> super::tests::World {
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let lister = lister("", "configmaps", "ConfigMap");
    reflect_into(CacheConfig::new(lister.resource.gvr.clone()), upstream, lister, config, Some(saved))
}

#[tokio::test]
async fn a_saved_state_takes_the_place_of_the_list() {
    let open = Open::default();
    let watches = open.clone();
    let server = server(120, move || watches.watch_with("", added("three", 110))).await;
    let world = reflect(&server, config(), saved(2)).await;
    world.follows().await;
    until(|| world.cache.resource_version().get() >= 110).await;
    assert_eq!(names(&world.cache), ["one", "two", "three"]);
    assert_eq!(states(&server), 0, "{:?}", server.uris());
    assert_eq!(world.cache.window_floor(), Some(ResourceVersion(SAVED)));
    // From here on it is a cache like any other: what expires is listed.
    let (_, sender) = open.last();
    sender.send(EXPIRED.into()).await.unwrap();
    until(|| names(&world.cache) == ["other"]).await;
    assert_eq!(world.handle.status().rewinds, 0);
}

#[tokio::test]
async fn nothing_is_served_before_the_watch_is_open() {
    // The apiserver says its revision, but does not answer the watch.
    let server = server(120, || answer(503, "")).await;
    let world = reflect(&server, config(), saved(0)).await;
    while server.uris().iter().filter(|uri| uri.contains("resourceVersion=100")).count() < 3 {
        assert!(!world.cache.is_ready());
        sleep(Duration::from_millis(5)).await;
    }
    assert!(!world.cache.is_ready());
    assert_eq!(states(&server), 0, "{:?}", server.uris());
}

#[tokio::test]
async fn a_revision_that_the_apiserver_no_longer_has_leads_to_a_list() {
    for gone in [
        || answer(410, r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#),
        || Open::default().watch_with("", EXPIRED),
    ] {
        let server = server(120, gone).await;
        let world = reflect(&server, config(), saved(0)).await;
        until(|| world.cache.is_ready()).await;
        assert_eq!(names(&world.cache), ["other"], "the saved state is never seen");
        world.follows().await;
        assert_eq!(world.cache.resource_version().get(), 120);
    }
}

#[tokio::test]
async fn an_apiserver_that_is_behind_leads_to_a_list() {
    let watches = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&watches);
    let server = server(SAVED - 1, move || {
        count.fetch_add(1, Ordering::Relaxed);
        streamed().1
    })
    .await;
    let world = reflect(&server, config(), saved(0)).await;
    until(|| world.cache.is_ready()).await;
    assert_eq!(names(&world.cache), ["other"]);
    assert_eq!((watches.load(Ordering::Relaxed), world.handle.status().rewinds), (0, 1));
    assert_eq!(world.cache.resource_version().get(), SAVED - 1);
}

#[tokio::test]
async fn an_event_that_cannot_be_decoded_leads_to_a_list() {
    let open = Open::default();
    let server = server(120, move || open.watch_with("", added("odd\u{fffd}", 110))).await;
    let world = reflect(&server, soon(), saved(0)).await;
    world.until(|status| status.undecodable).await;
    world.follows().await;
    assert_eq!(names(&world.cache), ["other"], "the saved state is never seen");
    assert_eq!(server.uris().iter().filter(|uri| uri.contains("resourceVersion=100")).count(), 3, "a few times");
}
