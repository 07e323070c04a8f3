use super::*;
use crate::apiserver::testing::{FakeServer, answer, silence, streamed, until};
use crate::auth::user::{POD_UID, UserInfo};

fn pod(name: &str) -> Object {
    pod_of("a", name)
}

fn pod_of(namespace: &str, name: &str) -> Object {
    Object { resource: "pods", namespace: namespace.into(), name: name.into(), uid: name.into() }
}

async fn watches(config: kube::Config) -> Arc<PodWatches> {
    let upstream = Upstream::from_config(config).await.unwrap();
    Arc::new(PodWatches::new(upstream, Arc::default(), Arc::new(RbacGenerations::default())))
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
    // Nobody asks for any of them.
    until(|| all.open.lock().by_uid.keys().all(|uid| **uid == *"0")).await;
    assert!(Arc::ptr_eq(&all.of(&pod("0")).unwrap(), &first) && all.of(&pod("more")).is_some());
    first.tell(&Seen::Pinged);
    assert!(first.is_open());
    all.open.lock().by_uid.remove("0");
    assert!(!first.is_open(), "nothing rests on a watch that is gone");
    tokio::time::advance(IDLE).await;
    until(|| all.open.lock().by_uid.is_empty()).await;
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
    // Another one had its name before.
    for (uid, is_watched) in [("u", true), ("p.1", false)] {
        let metadata = format!(r#"{{"name":"p.1","uid":"{uid}","resourceVersion":"2"}}"#);
        let event = format!("{{\"type\":\"DELETED\",\"object\":{{\"metadata\":{metadata}}}}}\n");
        sender.lock().as_ref().unwrap().try_send(event.into()).unwrap();
        let extra = [(POD_UID.to_owned(), vec![uid.to_owned()])].into();
        let user = UserInfo { extra, ..UserInfo::default() };
        until(|| all.revoked.covers(&user)).await;
        until(|| followed.is_open() == is_watched).await;
        assert_eq!(all.open.lock().by_uid.len(), usize::from(is_watched), "{uid}");
    }
    assert_eq!(all.revoked.missed(), 0, "other tokens are known as before");
}

#[tokio::test]
async fn who_may_not_watch_pods_does_not_try_with_each() {
    let server = FakeServer::plain(|request, _| {
        let is_allowed = request.uri().path() == "/api/v1/namespaces/allowed/pods";
        async move { if is_allowed { silence().await } else { answer(403, "") } }
    })
    .await;
    let all = watches(server.config()).await;
    let allowed = all.of(&pod_of("allowed", "r")).unwrap();
    let is_refused = |namespace: &str| all.open.lock().refused.contains_key(namespace);
    assert!(all.of(&pod("p")).is_some());
    until(|| is_refused("a")).await;
    assert!(all.of(&pod("p")).is_none() && all.of(&pod("q")).is_none());
    assert!(Arc::ptr_eq(&all.of(&pod_of("allowed", "r")).unwrap(), &allowed), "what is open stays so");
    let others = (2..=MOST_WATCHES).map(|n| (Box::<str>::from(n.to_string()), Instant::now() + REFUSED));
    all.open.lock().refused.extend(others);
    assert!(all.of(&pod_of("more", "m")).is_none(), "so many refuse that none is tried");
    tokio::time::pause();
    tokio::time::advance(REFUSED).await;
    assert!(all.of(&pod("q")).is_some() && all.open.lock().refused.is_empty());
}
