use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::metadata::Metadata;
use crate::apiserver::testing::{FakeServer, answer};
use crate::auth::config::AuthConfig;
use crate::auth::testing::reviews_by;

/// The UID of each object is its name, except for one that was made anew.
async fn reviews(asked: impl Fn() + Send + Sync + 'static) -> (Reviews, FakeServer) {
    let server = FakeServer::plain(move |request, _| {
        asked();
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (code, metadata) = match &*name {
            "gone" => (404, "{}".to_owned()),
            "forbidden" => (403, "{}".to_owned()),
            "failed" => (500, "{}".to_owned()),
            "anew" => (200, r#"{"uid":"another"}"#.to_owned()),
            "going" => (200, r#"{"uid":"going","deletionTimestamp":"2026-01-01T00:00:00Z"}"#.to_owned()),
            name => (200, format!(r#"{{"uid":"{name}","deletionTimestamp":null}}"#)),
        };
        std::future::ready(answer(code, format!(r#"{{"metadata":{metadata}}}"#)))
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    (reviews_by(upstream, &AuthConfig::default(), &Arc::default()), server)
}

fn object(name: &str) -> Object {
    Object { resource: "pods", namespace: "a".into(), name: name.into(), uid: name.into() }
}

fn open() -> Followed {
    let followed = Followed::default();
    assert!(!followed.tell(&Seen::Restarted(Vec::new())), "nothing was there");
    assert!(!followed.tell(&Seen::Live) && !followed.is_open(), "a dead connection would be found late");
    assert!(!followed.tell(&Seen::Pinged) && followed.is_open());
    followed
}

#[tokio::test]
async fn an_object_is_looked_up_once_while_its_watch_is_open() {
    let (reviews, server) = reviews(|| ()).await;
    assert_eq!(Followed::default().losses(), None);
    let found = Followed::default().find(&reviews, &object("p")).await.unwrap();
    assert!(found.is_none() && server.uris().is_empty());
    let followed = open();
    for (name, is_there) in [("p", true), ("q", true), ("p", true), ("gone", false), ("anew", false), ("going", false)]
    {
        assert_eq!(followed.find(&reviews, &object(name)).await.unwrap().is_some(), is_there, "{name}");
    }
    assert!(followed.find(&reviews, &object("failed")).await.is_err());
    assert!(followed.find(&reviews, &object("forbidden")).await.unwrap().is_none());
    let uris = ["p", "q", "gone", "anew", "going", "failed", "forbidden"]
        .map(|name| format!("/api/v1/namespaces/a/pods/{name}"));
    assert_eq!(server.uris(), uris, "from the store");
}

#[tokio::test]
async fn whatever_may_end_an_object_ends_what_rests_on_it() {
    let (reviews, _server) = reviews(|| ()).await;
    let [there, going, other] = [("p", ""), ("p", "2026-01-01T00:00:00Z"), ("q", "")].map(|(uid, deleted)| Metadata {
        uid: uid.into(),
        deletion_timestamp: deleted.into(),
        ..Metadata::default()
    });
    for (seen, ends, is_open, is_lost) in [
        (Seen::Change { deleted: true, object: &there }, true, true, false),
        (Seen::Change { deleted: false, object: &going }, true, true, false),
        (Seen::Change { deleted: false, object: &there }, false, true, false),
        (Seen::Change { deleted: true, object: &other }, false, true, false),
        (Seen::Live, false, true, false),
        (Seen::Pinged, false, true, false),
        (Seen::Lost { is_due: true }, false, false, false),
        (Seen::Lost { is_due: false }, false, false, true),
        (Seen::Refused, true, false, true),
        (Seen::Restarted(Vec::new()), true, false, true),
    ] {
        let followed = open();
        let find = async || followed.find(&reviews, &object("p")).await.unwrap();
        let (there, losses) = (find().await.unwrap(), followed.losses());
        assert_eq!(followed.tell(&seen), ends, "{seen:?}");
        assert_eq!((there.holds(), followed.is_open()), (!ends, is_open), "{seen:?}");
        assert_eq!(followed.losses().is_some(), is_open, "{seen:?}: a review before it is open again may be too old");
        assert_eq!(find().await.is_some(), is_open, "{seen:?}: looked up anew");
        followed.tell(&Seen::Pinged);
        assert_eq!(followed.losses() > losses, is_lost, "{seen:?}");
        let again = find().await.unwrap();
        assert!(again.holds() && there.holds() != ends, "{seen:?}: what has ended stays so");
        assert_eq!(Arc::ptr_eq(&again.0, &there.0), !ends && !is_lost, "{seen:?}: known from before");
    }
}

/// Its deletion is reported while the store is asked, whose answer may be older.
#[tokio::test]
async fn an_object_that_may_have_ended_meanwhile_is_not_there() {
    for (uid, is_due, is_there) in
        [(Some("p"), None, false), (Some("q"), None, true), (None, Some(true), false), (None, Some(false), false)]
    {
        let followed = Arc::new(open());
        let telling = Arc::clone(&followed);
        let tell = move || {
            let metadata = uid.map(|uid| Metadata { uid: uid.into(), ..Metadata::default() });
            if let Some(object) = &metadata {
                telling.tell(&Seen::Change { deleted: true, object });
            }
            if let Some(is_due) = is_due {
                telling.tell(&Seen::Lost { is_due });
            }
            if is_due == Some(false) {
                telling.tell(&Seen::Pinged);
            }
        };
        let (reviews, _server) = reviews(tell).await;
        let found = followed.find(&reviews, &object("p")).await.unwrap();
        assert_eq!(found.is_some(), is_there, "{uid:?} {is_due:?}");
    }
}

#[tokio::test]
async fn so_many_objects_are_remembered() {
    let (reviews, _server) = reviews(|| ()).await;
    let followed = open();
    let there = (1..MOST).map(|n| (Box::<str>::from(n.to_string()), There(Arc::new(AtomicBool::new(true)))));
    followed.state.lock().there.extend(there);
    assert!(followed.find(&reviews, &object("p")).await.unwrap().is_some());
    assert!(followed.find(&reviews, &object("q")).await.unwrap().is_none());
}
