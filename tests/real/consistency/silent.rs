//! Watches that stay open and say nothing more: they are given up, and what they missed is delivered.

use http::Method;
use serde_json::json;

use super::Scene;
use super::proxy::Mute;
use crate::support::client::{Client, Watch, rv};
use crate::support::until;

const MAPS: &str = "/api/v1/configmaps";
const IN_A: &str = "/api/v1/namespaces/a/configmaps";

impl Scene {
    async fn make(&self, name: &str) {
        self.direct.write(Method::POST, IN_A, &json!({"metadata": {"name": name}})).await;
    }

    pub(super) fn silences(&self) -> u64 {
        self.daemon.daemon.factory.informers().iter().map(|informer| informer.status().silences).sum()
    }

    fn relists(&self) -> u64 {
        self.daemon.daemon.factory.informers().iter().map(|informer| informer.status().relists).sum()
    }
}

/// A watch of everything from now on, through an informer that follows.
async fn begin(scene: &Scene) -> Watch {
    scene.make("first").await;
    let mut watch = scene.through.watch(&format!("{IN_A}?watch=1&resourceVersion=0")).await;
    while watch.next_event().await["object"]["metadata"]["name"] != "first" {}
    watch
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_says_nothing_is_opened_anew() {
    let scene = Scene::start("explainHeader: true\n").await;
    let mut watch = begin(&scene).await;
    scene.proxy.mute("/configmaps", Mute::Open);
    scene.make("missed").await;
    // It is somebody's read that shows it.
    until("lists are complete", async || scene.through.json(MAPS).await.to_string().contains("missed")).await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "missed");
    assert!(scene.silences() >= 1);
    assert_eq!(scene.relists(), 0, "it is gone on from where it stood");
    scene.make("after").await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "after");
}

/// All watches of a large collection, before a bookmark came. One list shows that something is missing, and the number of
/// objects shows it; where that is the same, they are compared.
#[tokio::test(flavor = "multi_thread")]
async fn all_watches_of_a_large_collection_may_say_nothing() {
    let scene = Scene::start("").await;
    let names: Vec<_> = (0..=5000).map(|n| format!("cm-{n}")).collect();
    for some in names.chunks(100) {
        futures_util::future::join_all(some.iter().map(|name| scene.make(name))).await;
    }
    let now = rv(&scene.through.json(&format!("{IN_A}?resourceVersion=0&limit=1")).await);
    let mut watch = scene.through.watch(&format!("{IN_A}?watch=1&resourceVersion={now}")).await;
    scene.make("first").await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "first");
    scene.proxy.mute("/configmaps", Mute::All);
    scene.make("missed").await;
    scene.through.json(MAPS).await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "missed");
    let relists = scene.relists();
    assert!(scene.silences() >= 2 && relists >= 1, "the second time by a list");
    scene.direct.write(Method::PATCH, &format!("{IN_A}/missed"), &json!({"data": {"a": "b"}})).await;
    scene.through.json(MAPS).await;
    assert_eq!(watch.next_event().await["object"]["data"]["a"], "b");
    assert!(scene.relists() > relists);
}

/// What a client has written through the daemon is in its next read of the cached state, also if no event of it comes and
/// the next apiserver is behind.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_state_is_not_older_than_ones_own_write() {
    let scene = Scene::start("explainHeader: true\n").await;
    let _watch = begin(&scene).await;
    let table = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let metadata = ("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let plain = ("accept", "application/json");
    let list = format!("{IN_A}?resourceVersion=0&limit=1");
    // From now on, whoever accepts an old state gets this one.
    scene.proxy.stale(true);
    let before = Client::new(&scene.proxy.url);
    for form in [plain, table, metadata] {
        // Without the daemon, to the same address.
        let answer = before.request(Method::GET, &list, &[form], "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    scene.proxy.mute("/configmaps", Mute::All);
    scene.through.write(Method::POST, IN_A, &json!({"metadata": {"name": "own"}})).await;
    for form in [plain, table, metadata] {
        let through = scene.through.request(Method::GET, &list, &[form], "").await;
        let direct = scene.direct.request(Method::GET, &list, &[form], "").await;
        assert_eq!(through.status, 200, "{}", through.text());
        assert!(through.text().contains("\"own\""), "{form:?}: {:?}", through.headers);
        assert_eq!(through.headers["content-type"], direct.headers["content-type"]);
        let (through, direct) = (through.json(), direct.json());
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&through), keys(&direct));
        assert_eq!(keys(&through["metadata"]), keys(&direct["metadata"]), "{form:?}");
    }
    let own = scene.through.get(&format!("{IN_A}/own?resourceVersion=0")).await;
    assert_eq!(own.status, 200, "{:?}", own.headers);
}
