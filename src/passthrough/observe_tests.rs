use std::collections::VecDeque;

use http::Request;
use http_body_util::BodyExt;

use super::*;
use crate::passthrough::testing::Recorder;

/// Returns its parts one by one.
struct Given(VecDeque<Result<Bytes, BoxError>>);

impl Body for Given {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.pop_front().map(|part| part.map(Frame::data)))
    }
}

struct Setup {
    recorder: Arc<Recorder>,
    observation: Option<Observation>,
}

fn begin(method: &str, target: &str) -> Setup {
    begin_with(&Request::builder().method(method).uri(target).body(()).unwrap().into_parts().0)
}

fn begin_with(request: &Parts) -> Setup {
    let recorder = Arc::new(Recorder::default());
    let method = request.method.as_str();
    let info = RequestInfo::parse(method, request.uri.path(), request.uri.query().unwrap_or_default());
    let observer: Arc<dyn RevisionObserver> = Arc::clone(&recorder) as _;
    let observation = Observation::begin(&observer, &info, request, true);
    Setup { recorder, observation }
}

fn json() -> HeaderMap {
    HeaderMap::from_iter([(http::header::CONTENT_TYPE, "application/json".parse().unwrap())])
}

fn parts(parts: &[&str]) -> ForwardBody {
    let parts = parts.iter().map(|part| Ok(Bytes::from((*part).to_owned()))).collect();
    ForwardBody::new(Given(parts))
}

/// The recorded calls when each part came out, and at the end.
async fn pass(setup: Setup, status: u16, headers: &HeaderMap, body: ForwardBody) -> Vec<(String, Vec<String>)> {
    let status = StatusCode::from_u16(status).unwrap();
    let mut body = setup.observation.unwrap().answered(status, headers, body);
    let mut seen = Vec::new();
    while let Some(frame) = body.frame().await {
        let text = match frame {
            Ok(frame) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
            Err(error) => format!("error {error}"),
        };
        seen.push((text, setup.recorder.0.lock().clone()));
    }
    drop(body);
    seen.push(("end".into(), setup.recorder.0.lock().clone()));
    seen
}

fn row(part: &str, recorded: &[&str]) -> (String, Vec<String>) {
    (part.into(), recorded.iter().map(ToString::to_string).collect())
}

#[tokio::test]
async fn a_write_is_told_before_its_client_knows() {
    let body = parts(&[r#"{"kind":"Pod","metadata":{"na"#, r#"me":"p","resourceVersion":"4"#, r#"2"}"#, "}"]);
    let seen = pass(begin("POST", "/api/v1/namespaces/a/pods"), 201, &json(), body).await;
    let told = ["wrote pods 42"];
    assert_eq!(
        seen,
        [
            row(r#"{"kind":"Pod","metadata":{"na"#, &[]),
            row(r#"me":"p","resourceVersion":"4"#, &told),
            row(r#"2"}"#, &told),
            row("}", &told),
            row("end", &told),
        ],
        "what was held back comes out once the next part is known"
    );
}

#[tokio::test]
async fn the_last_part_waits_for_the_end_if_nothing_was_found() {
    let body = parts(&[r#"{"kind":"Status","#, r#""metadata":{}}"#]);
    let seen = pass(begin("POST", "/api/v1/namespaces/a/pods/p/eviction"), 201, &json(), body).await;
    assert_eq!(
        seen,
        [row(r#"{"kind":"Status","#, &[]), row(r#""metadata":{}}"#, &["wrote pods ?"]), row("end", &["wrote pods ?"])]
    );
}

#[tokio::test]
async fn deletions_and_unreadable_forms_are_unknown_at_once() {
    let object = r#"{"metadata":{"resourceVersion":"9"}}"#;
    for (method, target, headers) in [
        ("DELETE", "/api/v1/namespaces/a/pods/p", json()),
        ("DELETE", "/api/v1/namespaces/a/pods", json()),
        ("PUT", "/api/v1/namespaces/a/pods/p", HeaderMap::new()),
    ] {
        let seen = pass(begin(method, target), 200, &headers, parts(&[object])).await;
        assert_eq!(seen, [row(object, &["wrote pods ?"]), row("end", &["wrote pods ?"])], "{method}");
    }
}

#[tokio::test]
async fn what_did_not_happen_is_not_told() {
    for (status, told) in [
        (409, vec![]),
        (404, vec!["no p in pods"]),
        (304, vec![]),
        (500, vec!["perhaps wrote pods"]),
        (504, vec!["perhaps wrote pods"]),
    ] {
        let seen = pass(begin("PUT", "/api/v1/namespaces/a/pods/p"), status, &json(), parts(&[])).await;
        assert_eq!(seen, [row("end", &told)], "{status}");
    }
    let setup = begin("PUT", "/api/v1/namespaces/a/pods/p");
    setup.observation.unwrap().unsent();
    assert!(setup.recorder.0.lock().is_empty());
}

#[tokio::test]
async fn a_write_without_an_answer_may_have_happened() {
    let setup = begin("PATCH", "/apis/apps/v1/namespaces/a/deployments/d");
    drop(setup.observation);
    assert_eq!(*setup.recorder.0.lock(), ["perhaps wrote deployments"]);

    let broken = ForwardBody::new(Given([Ok(Bytes::from_static(b"{")), Err("reset".into())].into()));
    let seen = pass(begin("PATCH", "/api/v1/nodes/n"), 200, &json(), broken).await;
    let told = ["wrote nodes ?"];
    assert_eq!(seen, [row("{", &told), row("error reset", &told), row("end", &told)]);
}

#[tokio::test]
async fn reads_show_their_revision() {
    let list = r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}"#;
    for target in ["/api/v1/pods", "/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/pods/p/status"] {
        let seen = pass(begin("GET", target), 200, &json(), parts(&[list])).await;
        assert_eq!(seen, [row(list, &["showed pods 7"]), row("end", &["showed pods 7"])], "{target}");
    }
    let seen = pass(begin("GET", "/api/v1/pods"), 200, &HeaderMap::new(), parts(&[list])).await;
    assert_eq!(seen[0], row(list, &["showed pods ?"]));
    let seen = pass(begin("GET", "/api/v1/pods"), 403, &json(), parts(&[list])).await;
    assert_eq!(seen[1], row("end", &[]));
}

#[tokio::test]
async fn events_of_a_watch_are_told_one_by_one_and_not_held_back() {
    let events = [
        r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}"#,
        r#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"9"}}}"#,
    ];
    let seen = pass(begin("GET", "/api/v1/pods?watch=1"), 200, &json(), parts(&events)).await;
    assert_eq!(seen[0], row(events[0], &["showed pods 7"]));
    assert_eq!(seen[1], row(events[1], &["showed pods 7", "showed pods 9"]));
    assert_eq!(seen[2], row("end", &["showed pods 7", "showed pods 9"]));
}

#[test]
fn some_requests_neither_show_nor_change() {
    for (method, target) in [
        ("GET", "/version"),
        ("GET", "/api/v1/namespaces/a/pods/p/log"),
        ("HEAD", "/api/v1/pods"),
        ("POST", "/api/v1/namespaces/a/pods/p/exec"),
        ("POST", "/api/v1/namespaces/a/serviceaccounts/s/token"),
        ("OPTIONS", "/api/v1/pods"),
    ] {
        assert!(begin(method, target).observation.is_none(), "{method} {target}");
    }
}

#[tokio::test]
async fn an_object_that_is_not_there_is_told_before_its_client_knows() {
    for (method, target, told) in [
        ("GET", "/api/v1/namespaces/a/pods/p?resourceVersion=0", &["no p in pods"][..]),
        ("DELETE", "/api/v1/namespaces/a/pods/p", &["no p in pods"]),
        ("PATCH", "/api/v1/namespaces/a/pods/p", &["no p in pods"]),
        // This may be about the subresource, or about the namespace.
        ("GET", "/api/v1/namespaces/a/pods/p/status", &[]),
        ("POST", "/api/v1/namespaces/a/pods", &[]),
    ] {
        let seen = pass(begin(method, target), 404, &json(), parts(&["none"])).await;
        assert_eq!(seen[0], row("none", told), "{method} {target}");
    }
}

#[tokio::test]
async fn every_part_of_a_watch_that_cannot_be_read_may_show_something_new() {
    let protobuf = HeaderMap::from_iter([(
        http::header::CONTENT_TYPE,
        "application/vnd.kubernetes.protobuf;stream=watch".parse().unwrap(),
    )]);
    let seen = pass(begin("GET", "/api/v1/pods?watch=1"), 200, &protobuf, parts(&["a", "b"])).await;
    let unknown = "showed pods ?";
    assert_eq!(
        seen,
        [row("a", &[unknown]), row("b", &[unknown, unknown]), row("end", &[unknown, unknown])],
        "told before the part comes out"
    );
}

#[tokio::test]
async fn a_watch_over_a_websocket_has_shown_something_when_it_ends() {
    let setup = begin("GET", "/api/v1/pods?watch=1");
    let session = setup.observation.unwrap().upgraded();
    assert!(setup.recorder.0.lock().is_empty());
    drop(session);
    assert_eq!(*setup.recorder.0.lock(), ["showed pods ?"]);
}

#[tokio::test]
async fn a_watch_in_which_nothing_comes_has_shown_nothing() {
    for frames in [&[][..], &[r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#]] {
        let seen = pass(begin("GET", "/api/v1/pods?watch=1"), 200, &json(), parts(frames)).await;
        assert!(seen.iter().all(|(_, told)| told.is_empty()), "{seen:?}");
    }
}

#[tokio::test]
async fn a_revision_that_a_watch_waited_for_in_vain_is_told() {
    let late = r#"{"type":"ERROR","object":{"kind":"Status","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]},"code":504}}"#;
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410}}"#;
    let added = r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}"#;
    let fake = r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"},"spec":{"type":"ERROR","a":"ResourceVersionTooLarge"}}}"#;
    let binary = "\0\0\0\x40\n\x05ERROR\x12\x39k8s\0 Timeout ResourceVersionTooLarge";
    for (raised, events, told) in [
        (true, vec![fake], vec!["showed pods 7"]),
        (true, vec![binary], vec!["pods did not get there"]),
        (true, vec![late], vec!["pods did not get there"]),
        (true, vec![gone], vec![]),
        (true, vec![added, late], vec!["showed pods 7"]),
        (false, vec![late], vec![]),
    ] {
        let mut request = Request::get("/api/v1/pods?watch=1").body(()).unwrap().into_parts().0;
        if raised {
            request.extensions.insert(AsksForMore);
        }
        let seen = pass(begin_with(&request), 200, &json(), parts(&events)).await;
        assert_eq!(seen.last().unwrap().1, told, "{raised} {events:?}");
    }
}
