use informerd_client::v1::watch_request::Start;
use informerd_client::{Client, Error, Event, Selected};
use serde_json::Value;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::fake::{Fake, Script, broken, events, goodbye, refused, reset, script, snapshot_end, started};

const GAP: [&str; 13] = [
    "ADDED n/a 1",
    "ADDED n/b 2",
    "ADDED n/c 3",
    "ADDED n/d 4",
    "SYNCED",
    "DELETED n/b 2?",
    "ADDED n/b 6",
    "ADDED n/f 5",
    "DELETED n/f 7",
    "MODIFIED n/d 8",
    "ADDED n/e 9",
    "DELETED n/a 1?",
    "DELETED n/e 10",
];

async fn told(client: &Client, count: usize) -> Result<Vec<String>, Error> {
    let mut watch = client.watch::<Value>("v1/pods", Selected::default()).take(count);
    let mut lines = vec![];
    while let Some(event) = watch.try_next().await? {
        let version = event.key().map(|key| format!(" {}", key.resource_version)).unwrap_or_default();
        let unknown = matches!(event, Event::Deleted(_, None));
        if let (Some(key), Event::Added(_, object) | Event::Modified(_, object) | Event::Deleted(_, Some(object))) =
            (event.key(), &event)
        {
            assert_eq!(object["metadata"]["resourceVersion"], *key.resource_version);
        }
        lines.push(format!("{event}{version}{}", if unknown { "?" } else { "" }));
    }
    Ok(lines)
}

#[tokio::test]
async fn goes_on_from_its_token_and_tells_nothing_twice() {
    let first = [started(false), events("1", &["+a1", "+b2"]), snapshot_end(), events("2", &["~a3"])];
    // The last frame may come a second time.
    let resumed = script([started(true), events("2", &["~a3"]), events("3", &["-b4", "+c5"])]);
    let (fake, client) = Fake::watches([broken(first), broken([]), resumed]).await;
    let wanted = ["ADDED n/a 1", "ADDED n/b 2", "SYNCED", "MODIFIED n/a 3", "DELETED n/b 4", "ADDED n/c 5"];
    assert_eq!(told(&client, 6).await.unwrap(), wanted);
    let starts: Vec<_> = fake.asked.lock().unwrap().iter().map(|request| request.start.clone()).collect();
    let token = || Some(Start::ResumeToken("2".into()));
    assert_eq!(starts, [None, token(), token()]);
}

#[tokio::test]
async fn tells_what_went_while_nobody_looked() {
    let first = || vec![started(false), events("1", &["+a1", "+b2", "+c3", "+d4"]), snapshot_end()];
    // a is gone, b was made anew, c is the same, d has changed, e is new, f came and went meanwhile.
    let then = || {
        let news = [events("", &["+b6/x", "+c3", "+f5"]), events("", &["-f7", "+d8", "+e9"])];
        [Vec::from(news), vec![snapshot_end(), events("2", &["-e10"])]].concat()
    };
    let (_, over) = Fake::watches([broken(first()), script([vec![started(false)], then()].concat())]).await;
    let (_, within) = Fake::watches([script([first(), vec![reset()], then()].concat())]).await;
    for client in [over, within] {
        assert_eq!(told(&client, GAP.len()).await.unwrap(), GAP);
    }
}

#[tokio::test]
async fn continues_a_snapshot_that_was_cut() {
    let first = broken([started(false), events("half", &["+a1"])]);
    let rest = script([started(true), events("whole", &["+b2"]), snapshot_end()]);
    let (_, client) = Fake::watches([first, rest]).await;
    assert_eq!(told(&client, 3).await.unwrap(), ["ADDED n/a 1", "ADDED n/b 2", "SYNCED"]);
}

#[tokio::test]
async fn comes_back_after_a_goodbye() {
    let first = Script { ends: true, ..script([started(false), snapshot_end(), goodbye("bye")]) };
    let (_, client) = Fake::watches([first, script([started(true), events("1", &["+a1"])])]).await;
    assert_eq!(told(&client, 2).await.unwrap(), ["SYNCED", "ADDED n/a 1"]);
}

#[tokio::test]
async fn gives_up_a_token_that_is_refused() {
    let first = broken([started(false), events("1", &["+a1"]), snapshot_end()]);
    let again = script([started(false), events("2", &["+b5"]), snapshot_end()]);
    let (fake, client) = Fake::watches([first, refused(Code::InvalidArgument, Some("INVALID")), again]).await;
    assert_eq!(told(&client, 4).await.unwrap(), ["ADDED n/a 1", "SYNCED", "ADDED n/b 5", "DELETED n/a 1?"]);
    assert_eq!(fake.asked.lock().unwrap()[2].start, None);
}

#[tokio::test]
async fn what_cannot_succeed_ends_it() {
    for (code, reason, last) in [
        (Code::NotFound, Some("UNKNOWN_RESOURCE"), true),
        (Code::InvalidArgument, Some("INVALID"), true),
        (Code::PermissionDenied, Some("FORBIDDEN"), true),
        (Code::Unauthenticated, Some("UNAUTHENTICATED"), true),
        (Code::FailedPrecondition, Some("EXCLUDED"), true),
        (Code::FailedPrecondition, Some("STALE"), false),
        (Code::Unavailable, Some("NOT_SYNCED"), false),
        (Code::Internal, Some("INTERNAL"), false),
        // Not informerd's word.
        (Code::NotFound, None, false),
        (Code::Unimplemented, None, false),
    ] {
        let (_, client) = Fake::watches([refused(code, reason), script([started(false), snapshot_end()])]).await;
        let told = told(&client, 1).await;
        if !last {
            assert_eq!(told.unwrap(), ["SYNCED"], "{code:?} {reason:?}");
            continue;
        }
        let error = told.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(&error, Error::Refused { code: of, reason: why, .. } if *of == code && Some(&**why) == reason)
        );
        let begins = format!("informerd at {}, watch of v1/pods: {code:?}: no", client.server().address());
        assert!(text.starts_with(&begins) && format!("{error:?}") == text, "{text}");
        assert_eq!(text.contains("kubectl api-resources"), reason == Some("UNKNOWN_RESOURCE"));
    }
}

#[tokio::test]
async fn an_object_of_another_type_ends_it() {
    let (_, client) = Fake::watches([script([started(false), events("1", &["+a1"])])]).await;
    let mut watch = client.watch::<Vec<String>>("v1/pods", Selected::default());
    let error = watch.next().await.unwrap().unwrap_err();
    assert!(error.to_string().starts_with("watch of v1/pods, n/a: "), "{error}");
    assert!(watch.next().await.is_none());
}
