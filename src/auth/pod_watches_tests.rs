use super::*;
use crate::apiserver::testing::{FakeServer, answer, streamed, until};
use crate::auth::user::{POD_UID, UserInfo};

fn pod(name: &str) -> Object {
    Object { resource: "pods", namespace: "a".into(), name: name.into(), uid: name.into() }
}

async fn watches(config: kube::Config) -> Arc<PodWatches> {
    let upstream = Upstream::from_config(config).await.unwrap();
    Arc::new(PodWatches::new(upstream, Arc::default(), Arc::new(RbacGenerations::new())))
}

#[tokio::test(start_paused = true)]
async fn each_pod_in_use_has_one_watch_within_a_bound() {
    // Nothing listens there.
    let all = watches(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await;
    let first = all.of(&pod("0")).unwrap();
    assert!((1..MOST_WATCHES).all(|n| all.of(&pod(&n.to_string())).is_some()));
    assert!(all.of(&pod("more")).is_none());
    assert!(Arc::ptr_eq(&all.of(&pod("0")).unwrap(), &first));
    tokio::time::advance(IDLE / 2).await;
    assert!(all.of(&pod("0")).is_some() && all.of(&pod("more")).is_none());
    tokio::time::advance(IDLE / 2).await;
    assert!(all.of(&pod("more")).is_some());
    assert_eq!(all.open.lock().by_uid.len(), 2, "of the others nobody asked");
    tokio::time::advance(IDLE).await;
    first.tell(&Seen::Pinged);
    assert!(first.is_open() && all.of(&pod("last")).is_some());
    assert!(!first.is_open(), "nothing rests on a watch that is gone");
}

#[tokio::test]
async fn the_end_of_a_pod_is_told() {
    let sender = Arc::<Mutex<Option<_>>>::default();
    let kept = Arc::clone(&sender);
    let server = FakeServer::tls(&["h2"], 100, move |request, _| {
        let answer = if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let (sender, response) = streamed();
            *kept.lock() = Some(sender);
            response
        } else {
            answer(200, r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#)
        };
        std::future::ready(answer)
    })
    .await;
    let all = watches(server.config()).await;
    let followed = all.of(&pod("p.1")).unwrap();
    until(|| followed.is_open()).await;
    let uris = server.uris();
    assert!(
        uris.iter().all(|uri| uri.starts_with("/api/v1/namespaces/a/pods?")
            && uri.ends_with("&fieldSelector=metadata.name%3Dp%2E1")),
        "{uris:?}"
    );
    let event = r#"{"type":"DELETED","object":{"metadata":{"name":"p.1","uid":"u","resourceVersion":"2"}}}"#;
    sender.lock().as_ref().unwrap().try_send(format!("{event}\n").into()).unwrap();
    let extra = [(POD_UID.to_owned(), vec!["u".to_owned()])].into();
    let user = UserInfo { extra, ..UserInfo::default() };
    until(|| all.revoked.covers(&user)).await;
    assert_eq!(all.revoked.missed(), 0, "other tokens are known as before");
}

#[tokio::test]
async fn who_may_not_watch_pods_does_not_try_with_each() {
    let server = FakeServer::plain(|_, _| std::future::ready(answer(403, ""))).await;
    let all = watches(server.config()).await;
    assert!(all.of(&pod("p")).is_some());
    until(|| all.open.lock().not_before.is_some()).await;
    assert!(all.of(&pod("p")).is_none() && all.of(&pod("q")).is_none());
    tokio::time::pause();
    tokio::time::advance(REFUSED).await;
    assert!(all.of(&pod("q")).is_some());
}
