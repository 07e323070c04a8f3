use std::sync::{Arc, Mutex};

use informerd_client::{Error, Event, Selected};
use serde::Deserialize;
use tonic::Code;

use crate::fake::{Fake, broken, events, refused, script, snapshot_end, started};

#[derive(Debug, Deserialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[tokio::test]
async fn keeps_what_the_watch_tells() {
    let first = broken([started(false), events("1", &["+a1", "+b2"]), snapshot_end(), events("2", &["~a3", "+c4"])]);
    // b went unseen.
    let then = script([started(false), events("", &["+a3", "+c4"]), snapshot_end(), events("3", &["-c5"])]);
    let (_, client) = Fake::watches([first, then]).await;
    let (cache, feed) = client.cache::<Pod>("v1/pods", Selected::default());
    assert!(cache.is_empty());
    let changes = Arc::<Mutex<Vec<String>>>::default();
    let (told, over) = (changes.clone(), Arc::new(tokio::sync::Notify::new()));
    let last = over.clone();
    let running = tokio::spawn(feed.run(move |event, old| {
        let old = old.map(|pod| pod.metadata.resource_version.clone());
        told.lock().unwrap().push(format!("{event} {old:?}"));
        if matches!(&event, Event::Deleted(key, Some(pod)) if key.name == "c" && pod.metadata.name == "c") {
            last.notify_one();
        }
    }));
    cache.synced().await.unwrap();
    over.notified().await;
    assert_eq!(cache.len(), 1);
    assert_eq!(cache.get("n", "a").unwrap().metadata.resource_version, "3");
    assert!(cache.get("n", "b").is_none());
    let names: Vec<_> = cache.clone().values().iter().map(|pod| pod.metadata.name.clone()).collect();
    assert_eq!(names, ["a"]);
    let wanted = [
        "ADDED n/a None",
        "ADDED n/b None",
        "SYNCED None",
        r#"MODIFIED n/a Some("1")"#,
        "ADDED n/c None",
        r#"DELETED n/b Some("2")"#,
        r#"DELETED n/c Some("4")"#,
    ];
    assert_eq!(*changes.lock().unwrap(), wanted);
    running.abort();
    running.await.unwrap_err();
    cache.synced().await.unwrap();
}

#[tokio::test]
async fn tells_that_it_will_not_sync() {
    let (_, client) = Fake::watches([refused(Code::NotFound, Some("UNKNOWN_RESOURCE"))]).await;
    let (cache, feed) = client.cache::<Pod>("v1/pod", Selected::default());
    assert!(matches!(feed.run(|_, _| {}).await, Err(Error::Refused { .. })));
    let error = cache.synced().await.unwrap_err().to_string();
    assert!(error.contains("watch of v1/pod: NotFound") && error.contains("kubectl api-resources"), "{error}");
    let (cache, feed) = client.cache::<Pod>("v1/pods", Selected::default());
    drop(feed);
    assert!(matches!(cache.synced().await, Err(Error::NotSynced(_))));
}
