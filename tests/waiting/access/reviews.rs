//! Reviews that are slow, fail or do not come at all: what was decided lives on for its time, and nothing else is
//! allowed.

use std::time::Duration;

use informerd::config::Config;

use crate::access::faulty::Fault;
use crate::access::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn without_reviews_nothing_new_is_allowed() {
    // What is known is asked for again in the first minutes, in case that rights had just changed: it stays known. A token and
    // a denial are known for as long as this test needs them.
    let change = |config: &mut Config| {
        (config.auth.token_ttl, config.auth.deny_ttl) = (Duration::from_secs(600), Duration::from_secs(600));
    };
    let (world, faulty) = World::faulty("consistentReads: cache\n", change).await;
    world.warm(&["/api/v1/configmaps", "/api/v1/pods"]).await;
    let space = world.token("space", &[]).await;
    let (direct, through) = (world.direct(Some(&space)), world.through(Some(&space)));
    let (known, unknown) =
        ("/api/v1/namespaces/a/configmaps?resourceVersion=0", "/api/v1/namespaces/a/pods?resourceVersion=0");
    let (denied, other) = ("/api/v1/namespaces/b/configmaps?resourceVersion=0", "/api/v1/pods?resourceVersion=0");
    // One that is slow is waited for.
    faulty.set(Fault::Slow(Duration::from_millis(700)));
    let before = world.served();
    assert_eq!(through.get(known).await.status, 200);
    assert_eq!(through.get(denied).await.status, 403);
    assert_eq!(world.served(), before + 1);
    faulty.set(Fault::None);
    let mut watch = through.watch("/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0").await;
    assert_eq!(watch.next().await.unwrap().unwrap()["type"], "ADDED");
    for fault in [Fault::Failing, Fault::Nonsense, Fault::Down] {
        faulty.set(fault);
        let before = world.served();
        assert_eq!(through.get(known).await.status, 200, "{fault:?}: known");
        assert_eq!(world.served(), before + 1, "{fault:?}: served");
        assert_eq!(through.get(denied).await.status, 403, "{fault:?}: known");
        // Not known: the apiserver answers, to the client's own token.
        for target in [unknown, other] {
            let (ours, theirs) = (through.get(target).await, direct.get(target).await);
            assert_eq!(ours.status, theirs.status, "{fault:?}: {target}");
        }
        let stranger = world.through(Some("reader-token")).get(known).await;
        assert_eq!(stranger.status, 200, "{fault:?}: forwarded");
        assert_eq!(world.through(Some("wrong-token")).get(known).await.status, 401, "{fault:?}");
        // Nor is anybody taken for somebody of whom that is not known.
        for user in ["nobody", "system:serviceaccount:a:wide"] {
            let headers = [("impersonate-user", user)];
            let ours = world.through(Some("admin-token")).request(http::Method::GET, known, &headers, "").await;
            let theirs = world.admin().request(http::Method::GET, known, &headers, "").await;
            assert_eq!(ours.status, theirs.status, "{fault:?}: {user}");
        }
        assert_eq!(world.served(), before + 1, "{fault:?}: nothing else was served");
    }
    // The open watch lives on, and goes on.
    world.create("a", "tick").await;
    while watch.next().await.unwrap().unwrap()["object"]["metadata"]["name"] != "tick" {}
    // Until rights change and nobody can say to what.
    world.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/space").await;
    let before = world.served();
    // It ends as one that times out: nobody says that the right is gone.
    while let Some(event) = watch.next().await.unwrap() {
        assert_ne!(event["type"], "ERROR", "{event}");
    }
    assert_eq!(world.daemon.daemon.access.metrics().streams_unconfirmed.get(), 1);
    assert_eq!(through.get(known).await.text(), direct.get(known).await.text(), "the apiserver refuses it");
    assert_eq!(world.served(), before);
    faulty.set(Fault::None);
    assert_eq!(through.get(known).await.status, 403);
}
