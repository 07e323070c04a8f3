//! Rights that go while informerd cannot see it at once: they are gone soon all the same.

use std::time::Duration;

use informerd::config::Config;
use tokio::time::sleep;

use crate::access::authorizers::a_nodes_rights_come_and_go_with_its_pods;
use crate::access::faulty::{Fault, Faulty, Watches};
use crate::access::rights::path;
use crate::access::streams::{TWICE, WATCH, error};
use crate::access::world::World;
use crate::support::client::Watch;
use crate::support::eventually;

/// What is remembered is remembered for longer than any read waits.
const LONG_TTL: Duration = Duration::from_secs(3600);

/// For longer than a configuration may say.
fn remembers(config: &mut Config) {
    (config.auth.token_ttl, config.auth.allow_ttl) = (LONG_TTL, LONG_TTL);
}

/// What is taken away.
fn gone() -> String {
    path("rolebindings", "a", "space")
}

async fn world() -> (World, Faulty, Watch) {
    let (world, faulty) = World::faulty("", remembers).await;
    let through = world.through(Some(&world.token("space", &[]).await));
    let watch = through.watch("/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0").await;
    assert_eq!(watch.status, 200);
    (world, faulty, watch)
}

/// A read waits for less than `LONG_TTL`: the watch ends before the decision that it rests on is forgotten.
async fn ended(mut watch: Watch, what: &str, code: u16) {
    assert_eq!(error(&mut watch).await["code"], code, "{what}");
}

/// An authorizer that has not heard of the change yet is not believed for minutes.
async fn a_stale_authorizer() {
    let (world, faulty, watch) = world().await;
    faulty.set(Fault::Stale);
    world.delete(&gone()).await;
    let later = async {
        sleep(Duration::from_secs(7)).await;
        faulty.set(Fault::None);
    };
    tokio::join!(later, ended(watch, "an authorizer 7 s behind", 403));
}

/// Nobody tells of the change.
async fn no_watches_of_rights() {
    let (world, faulty, watch) = world().await;
    // What is decided in the first seconds of a daemon is asked for again anyway.
    sleep(Duration::from_secs(5)).await;
    faulty.watches(Watches::Ended);
    world.delete(&gone()).await;
    ended(watch, "without watches of rights", 403).await;
}

/// The watches stay open and say nothing more.
async fn silent_watches_of_rights() {
    let (world, faulty, watch) = world().await;
    let before = faulty.opened();
    assert!(before >= 4, "{before}");
    faulty.watches(Watches::Silent);
    world.delete(&gone()).await;
    ended(watch, "with silent watches of rights", 403).await;
    eventually("all are opened again", || faulty.opened() >= before + 4).await;
    world.settled().await;
}

/// What a forwarded watch rests on goes while it opens: the apiserver knew of it, and here it was never known.
async fn what_goes_while_a_watch_opens() {
    for (goes, is_right) in [(&*gone(), true), ("/api/v1/namespaces/a/serviceaccounts/space", false)] {
        let (world, faulty) = World::faulty("", remembers).await;
        let through = world.through(Some(&world.token("space", &[]).await));
        // Then its user is known, its rights are not.
        let elsewhere = "/api/v1/namespaces/b/configmaps?resourceVersion=0";
        assert!(!is_right || through.get(elsewhere).await.status == 403);
        let begin = faulty.seen().1;
        faulty.set(Fault::Slow(Duration::from_secs(1)));
        let mut watch = through.watch_as(&format!("/api/v1/namespaces/a/configmaps?{WATCH}"), &TWICE).await;
        assert_eq!(watch.status, 200, "{goes}");
        assert!(!is_right || faulty.seen().1 <= begin + 1, "nobody is asked before it goes to the apiserver");
        world.delete(goes).await;
        if is_right {
            assert_eq!(error(&mut watch).await["code"], 403);
        } else {
            while watch.next().await.unwrap().is_some() {}
        }
    }
}

/// Most of their time these wait; so they do it together.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_tells_of() {
    tokio::join!(
        a_stale_authorizer(),
        no_watches_of_rights(),
        silent_watches_of_rights(),
        what_goes_while_a_watch_opens(),
        a_nodes_rights_come_and_go_with_its_pods()
    );
}
