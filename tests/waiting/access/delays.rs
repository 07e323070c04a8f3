//! Rights that go while informerd cannot see it at once: they are gone soon all the same.

use std::time::Duration;

use tokio::time::sleep;

use crate::access::authorizers::a_nodes_rights_come_and_go_with_its_pods;
use crate::access::faulty::{Fault, Faulty, Watches};
use crate::access::streams::error;
use crate::access::world::World;
use crate::support::client::Watch;
use crate::support::eventually;

const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/space";
/// What is remembered is remembered for longer than any read waits.
const LONG_TTL: &str = "authentication: {ttl: 1h}\nauthorization: {allowTtl: 1h}\n";

async fn world() -> (World, Faulty, Watch) {
    let (world, faulty) = World::faulty(LONG_TTL, |_| {}).await;
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
    world.delete(BINDING).await;
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
    world.delete(BINDING).await;
    ended(watch, "without watches of rights", 403).await;
}

/// The watches stay open and say nothing more.
async fn silent_watches_of_rights() {
    let (world, faulty, watch) = world().await;
    let before = faulty.opened();
    assert!(before >= 4, "{before}");
    faulty.watches(Watches::Silent);
    world.delete(BINDING).await;
    ended(watch, "with silent watches of rights", 403).await;
    eventually("all are opened again", || faulty.opened() >= before + 4).await;
    world.settled().await;
}

/// The account goes while a watch of it opens that is forwarded: the apiserver knew it, and here it was never known.
async fn an_account_that_goes_while_a_watch_opens() {
    let (world, faulty) = World::faulty(LONG_TTL, |_| {}).await;
    let through = world.through(Some(&world.token("space", &[]).await));
    faulty.set(Fault::Slow(Duration::from_secs(1)));
    let target = "/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0";
    let mut watch = through.watch_as(target, &[("accept", "application/json"); 2]).await;
    assert_eq!(watch.status, 200);
    world.delete("/api/v1/namespaces/a/serviceaccounts/space").await;
    while watch.next().await.unwrap().is_some() {}
}

/// Most of their time these wait; so they do it together.
#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_tells_of() {
    tokio::join!(
        a_stale_authorizer(),
        no_watches_of_rights(),
        silent_watches_of_rights(),
        an_account_that_goes_while_a_watch_opens(),
        a_nodes_rights_come_and_go_with_its_pods()
    );
}
