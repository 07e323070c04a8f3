use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::*;
use crate::testing::{FakeServer, answer, endless, streamed};
use informerd_lifecycle::spawn;

const LIST: &str =
    r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","uid":"u","resourceVersion":"5"}}]}"#;
/// The answers of the store after [`ADDED`], and of one that was restored from a backup.
/// With its first object, as the apiserver answers.
const LATER: &str = r#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","uid":"u","resourceVersion":"5","annotations":{"a":"b"}}}]}"#;
const RESTORED: &str = r#"{"metadata":{"resourceVersion":"8"},"items":[{"metadata":{"name":"a","uid":"u","resourceVersion":"5","annotations":{"a":"b"}}}]}"#;
const ADDED: &str =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\",\"uid\":\"v\",\"resourceVersion\":\"9\"}}}\n";

const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n";

struct Following {
    server: FakeServer,
    told: Arc<Mutex<Vec<String>>>,
    more: Arc<Notify>,
}

/// Follows a collection whose lists are answered with `list`, and questions about the revision with `later`. Every watch
/// sends one event and then stays silent.
async fn following(list: (u16, &'static str), later: &'static str) -> Following {
    following_to(list, later, vec![ADDED.into()]).await
}

/// The same with these chunks in every watch.
async fn following_to(list: (u16, &'static str), later: &'static str, chunks: Vec<Bytes>) -> Following {
    let server = FakeServer::plain(move |request, _| {
        let chunks = chunks.clone();
        async move {
            match request.uri().query().unwrap_or_default() {
                "limit=1" => return answer(200, later),
                query if !query.contains("watch=true") => return answer(list.0, list.1),
                _ => {}
            }
            // Like a connection whose peer is gone without closing it.
            endless(chunks)
        }
    })
    .await;
    following_at(server).await
}

async fn following_at(server: FakeServer) -> Following {
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let (told, more) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Notify::new()));
    let (says, wakes) = (Arc::clone(&told), Arc::clone(&more));
    let refused = Duration::from_secs(60);
    let collection = Collection {
        path: "/api/v1/things".into(),
        resource: "things",
        field_selector: String::new(),
        listed: true,
        whole: Whole::Nowhere,
        refused,
    };
    spawn(
        "following",
        follow(upstream, collection, move |seen| {
            says.lock().push(match seen {
                Seen::Restarted(objects) => format!("restarted with {}", objects.len()),
                Seen::Change { object, .. } => object.name.clone(),
                Seen::Lost { is_due: false } => "Lost".to_owned(),
                Seen::Lost { is_due: true } => "Over".to_owned(),
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
            let more = tokio::time::timeout(Duration::from_secs(600), self.more.notified()).await;
            assert!(more.is_ok(), "waiting for {count}: {:?}", self.told.lock());
        }
        self.told.lock().drain(..count).collect()
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

/// Over HTTP/1.1, as in the other tests, that is not told.
#[tokio::test]
async fn it_is_told_that_pings_find_a_dead_connection() {
    let server = FakeServer::tls(&["h2"], 100, |request, _| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        std::future::ready(if is_watch { endless(vec![ADDED.into()]) } else { answer(200, LIST) })
    })
    .await;
    assert_eq!(following_at(server).await.told(3).await, ["restarted with 1", "Pinged", "b"]);
}

/// Only the first one has told everything up to its end.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "real time is to go on")]
async fn a_watch_whose_time_is_over_is_told_apart_from_one_that_ends_before() {
    for (early, told) in [(0, "Over"), (60, "Lost")] {
        let server = FakeServer::plain(move |request, _| async move {
            let query = request.uri().query().unwrap_or_default();
            let Some((_, seconds)) = query.split_once("timeoutSeconds=") else { return answer(200, LIST) };
            let lasts = seconds.parse::<u64>().unwrap() - early;
            let (sender, response) = streamed();
            spawn("watched", async move {
                for _ in 0..lasts {
                    sleep(Duration::from_secs(1)).await;
                    sender.send(BOOKMARK.into()).await.ok();
                }
            });
            response
        })
        .await;
        let following = following_at(server).await;
        assert_eq!(following.told(1).await, ["restarted with 1"]);
        tokio::time::pause();
        // What is sent arrives before the clock goes on for long.
        spawn("clock", async {
            loop {
                sleep(Duration::from_millis(200)).await;
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(following.told(2).await, [told, "Live"]);
        tokio::time::resume();
    }
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

#[tokio::test]
async fn an_event_that_cannot_be_read_costs_the_position_and_the_list_goes_on_after_it() {
    for bad in [
        "garbage\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\"\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"9\"}}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"9\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\"}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":7,\"resourceVersion\":\"9\"}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Role\"}}\n",
        "{\"type\":\"ADDED\"}\n",
        "{\"type\":\"RENAMED\",\"object\":{\"metadata\":{\"name\":\"b\",\"resourceVersion\":\"9\"}}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"0\"}}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"x\"}}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{}}}\n",
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":500,\"status\":\"Failure\"}}\n",
        "{\"type\":\"ERROR\",\"object\":null}\n",
        // The rest of it never comes.
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":",
    ] {
        cannot_be_read(bad.as_bytes()).await;
    }
    cannot_be_read(b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\xff\",\"resourceVersion\":\"9\"}}}\n")
        .await;
    let many = format!("{{\"type\":\"ADDED\",\"object\":{{\"data\":{{{}\"x\":1}}}}}}\n", "\"x\":1,".repeat(1 << 20));
    cannot_be_read(many.as_bytes()).await;
}

/// An event that follows a readable one.
async fn cannot_be_read(bad: &[u8]) {
    let shown = String::from_utf8_lossy(&bad[..bad.len().min(100)]).into_owned();
    let chunks = vec![ADDED.into(), Bytes::copy_from_slice(bad), ADDED.into()];
    let following = following_to((200, LIST), LATER, chunks).await;
    assert_eq!(following.told(2).await, ["restarted with 1", "b"], "{shown}");
    tokio::time::pause();
    let told = following.told(3).await;
    assert_eq!(told, ["Lost", "restarted with 1", "b"], "{shown}");
    let uris = following.server.uris();
    assert_eq!(uris.iter().filter(|uri| uri.contains("watch=true&") && uri.contains("resourceVersion=9&")).count(), 0);
    tokio::time::resume();
}

#[tokio::test]
async fn an_event_and_a_list_of_any_size_are_read() {
    let long = "\\u003c".repeat(2_000_000);
    let deep = format!("{}{}", "{\"f:a\":".repeat(5000) + "1", "}".repeat(5000));
    let metadata = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"u","ownerReferences":[{{"name":"{long}"}}],"resourceVersion":"9","selfLink":"{long}","managedFields":[{{"fieldsV1":{deep}}}]}}}}"#
        )
    };
    let frame = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", metadata("large"));
    let list = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{},{}]}}"#, metadata("a"), metadata("b"));
    let chunks = frame.as_bytes().chunks(1 << 20).map(Bytes::copy_from_slice).chain([ADDED.into()]).collect();
    let following = following_to((200, list.leak()), LATER, chunks).await;
    assert_eq!(following.told(3).await, ["restarted with 2", "large", "b"]);
}

#[tokio::test]
async fn a_watch_that_breaks_before_it_has_brought_anything_is_not_resumed() {
    let following = following_to((200, LIST), LATER, Vec::new()).await;
    assert_eq!(following.told(1).await, ["restarted with 1"]);
    following.server.reset();
    assert_eq!(following.told(2).await, ["Lost", "restarted with 1"]);
    let following = following_to((200, LIST), LATER, vec![ADDED.into()]).await;
    assert_eq!(following.told(2).await, ["restarted with 1", "b"]);
    following.server.reset();
    assert_eq!(following.told(3).await, ["Lost", "Live", "b"], "one that did is resumed");
    let following = following_to((200, LIST), LATER, Vec::new()).await;
    assert_eq!(following.told(1).await, ["restarted with 1"]);
    tokio::time::pause();
    sleep(SHORTLY).await;
    following.server.reset();
    assert_eq!(following.told(2).await, ["Lost", "Live"], "so is one that was open for some time");
}

#[tokio::test]
async fn what_is_kept_of_a_page_has_a_bound() {
    let page = |digits| format!(r#"{{"metadata":{{"resourceVersion":"7","a":{}}},"items":[]}}"#, "1".repeat(digits));
    for (bytes, told) in [(MAX_PAGE, "restarted with 0"), (MAX_PAGE + 1, "Lost")] {
        let page = page(bytes - page(0).len());
        assert_eq!(following((200, page.leak()), LATER).await.told(1).await, [told]);
    }
}
