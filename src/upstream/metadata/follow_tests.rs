use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::*;
use crate::lifecycle::spawn;
use crate::upstream::testing::{FakeServer, answer, streamed};

const LIST: &str =
    r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","uid":"u","resourceVersion":"5"}}]}"#;
/// The answers of the store after [`ADDED`], and of one that was restored from a backup.
const LATER: &str = r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#;
const RESTORED: &str = r#"{"metadata":{"resourceVersion":"8"},"items":[]}"#;
const ADDED: &str =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\",\"uid\":\"v\",\"resourceVersion\":\"9\"}}}\n";

struct Following {
    server: FakeServer,
    told: Arc<Mutex<Vec<String>>>,
    more: Arc<Notify>,
}

/// Follows a collection whose lists are answered with `list`, and questions about the revision with `later`. Every watch
/// sends one event and then stays silent.
async fn following(list: (u16, &'static str), later: &'static str) -> Following {
    let server = FakeServer::plain(move |request, _| async move {
        match request.uri().query().unwrap_or_default() {
            "limit=1" => return answer(200, later),
            query if !query.contains("watch=true") => return answer(list.0, list.1),
            _ => {}
        }
        let (sender, response) = streamed();
        sender.send(ADDED.into()).await.ok();
        // Like a connection whose peer is gone without closing it.
        spawn("silent", async move {
            let _open = sender;
            std::future::pending::<()>().await;
        });
        response
    })
    .await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let (told, more) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Notify::new()));
    let (says, wakes) = (Arc::clone(&told), Arc::clone(&more));
    let refused = Duration::from_secs(60);
    let collection = Collection {
        path: "/api/v1/things",
        resource: "things",
        field_selector: String::new(),
        listed: true,
        whole: false,
        refused,
    };
    spawn(
        "following",
        follow(upstream, collection, move |seen| {
            says.lock().push(match seen {
                Seen::Restarted(objects) => format!("restarted with {}", objects.len()),
                Seen::Change { object, .. } => object.name.clone(),
                other => format!("{other:?}"),
            });
            wakes.notify_one();
        }),
    );
    Following { server, told, more }
}

impl Following {
    async fn told(&self, count: usize) -> Vec<String> {
        while self.told.lock().len() < count {
            self.more.notified().await;
        }
        std::mem::take(&mut *self.told.lock())
    }
}

#[tokio::test]
async fn a_dead_connection_is_lost_within_seconds_and_resumed_where_it_stopped() {
    let following = following((200, LIST), LATER).await;
    assert_eq!(following.told(2).await, ["restarted with 1", "b"]);
    tokio::time::pause();
    let silent = Instant::now();
    assert_eq!(following.told(3).await, ["Lost", "Live", "b"]);
    let lasted = silent.elapsed();
    assert!(lasted <= SILENCE_WITHOUT_PING + Duration::from_secs(5), "{lasted:?}");
    let uris = following.server.uris();
    assert!(uris[1].contains("resourceVersion=7&") && uris[3].contains("resourceVersion=9&"), "{uris:?}");
}

#[tokio::test]
async fn a_store_that_went_back_is_listed_again() {
    let following = following((200, LIST), RESTORED).await;
    assert_eq!(following.told(2).await, ["restarted with 1", "b"]);
    tokio::time::pause();
    assert_eq!(following.told(3).await, ["Lost", "restarted with 1", "b"]);
    let uris = following.server.uris();
    assert!(uris[4].contains("resourceVersion=7&"), "not from a revision that is yet to come: {uris:?}");
}

#[tokio::test]
async fn what_may_not_be_seen_is_told_and_asked_for_again() {
    let following = following((403, ""), "").await;
    assert_eq!(following.told(2).await, ["Lost", "Refused"]);
    tokio::time::pause();
    assert_eq!(following.told(2).await, ["Lost", "Refused"]);
}
