//! Watches that stay open and say nothing more: they are given up, and what they missed is delivered. `simulated::faults` has
//! the case that no watch says anything and somebody reads the newest state.

use http::Method;
use serde_json::{Value, json};

use super::Scene;
use crate::support::client::{Client, Watch};
use crate::support::until;

const MAPS: &str = "/api/v1/namespaces/a/configmaps";

async fn make(client: &Client, name: &str) {
    client.write(Method::POST, MAPS, &json!({"metadata": {"name": name}})).await;
}

/// Behind an informer that follows, with a watch of it.
async fn followed() -> (Scene, Watch) {
    let scene = Scene::start("").await;
    make(&scene.direct, "first").await;
    let mut watch = scene.through.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await;
    while watch.next_event().await["object"]["metadata"]["name"] != "first" {}
    (scene, watch)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_says_nothing_is_opened_anew() {
    let (scene, mut watch) = followed().await;
    scene.proxy.mute("/configmaps");
    make(&scene.direct, "missed").await;
    // It is somebody's read that shows it.
    let all = "/api/v1/configmaps";
    until("lists are complete", async || scene.through.json(all).await.to_string().contains("missed")).await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "missed");
    let status = scene.daemon.daemon.factory.informers().into_iter().map(|informer| informer.status());
    let counts = status.fold((0, 0), |(silences, relists), one| (silences + one.silences, relists + one.relists));
    assert!(counts.0 >= 1 && counts.1 == 0, "{counts:?}: it is gone on from where it stood");
    make(&scene.direct, "after").await;
    assert_eq!(watch.next_event().await["object"]["metadata"]["name"], "after");
}

/// What a client has written through the daemon is in its next read of any state, also if no event of it comes and the
/// apiserver is behind.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_state_is_not_older_than_ones_own_write() {
    let (scene, _watch) = followed().await;
    let forms = [
        "application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    ];
    let list = format!("{MAPS}?resourceVersion=0&limit=1");
    let listed = async |client: &Client, form: &str| client.request(Method::GET, &list, &[("accept", form)], "").await;
    // From now on, whoever accepts an old state gets this one.
    scene.proxy.stale();
    for form in forms {
        let before = listed(&Client::new(&scene.proxy.url), form).await;
        assert_eq!(before.status, 200, "{}", before.text());
    }
    scene.proxy.mute_all("/configmaps");
    make(&scene.through, "own").await;
    for form in forms {
        let [through, direct] = [listed(&scene.through, form).await, listed(&scene.direct, form).await];
        assert_eq!(through.status, 200, "{}", through.text());
        assert!(through.text().contains("\"own\""), "{form}: {:?}", through.headers);
        assert_eq!(through.headers["content-type"], direct.headers["content-type"]);
        let (through, direct) = (through.json(), direct.json());
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&through), keys(&direct));
        assert_eq!(keys(&through["metadata"]), keys(&direct["metadata"]), "{form}");
    }
    let own = scene.through.get(&format!("{MAPS}/own?resourceVersion=0")).await;
    assert_eq!(own.status, 200, "{:?}", own.headers);
}
