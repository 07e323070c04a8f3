use futures_util::stream;
use http::Request;
use http_body_util::{BodyExt, StreamBody};

use super::*;
use crate::passthrough::testing::Recorder;

struct Setup {
    recorder: Arc<Recorder>,
    observation: Option<Observation>,
}

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

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

/// The recorded calls when each part came out, and at the end. After the parts, the body breaks if it is broken.
async fn pass(setup: Setup, status: u16, media_type: &str, parts: &[&str], is_broken: bool) -> Vec<Vec<String>> {
    let status = StatusCode::from_u16(status).unwrap();
    let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, media_type.parse().unwrap())]);
    let given: Vec<_> = parts.iter().map(|part| Ok(Frame::data(Bytes::from((*part).to_owned())))).collect();
    let given = given.into_iter().chain(is_broken.then(|| Err("reset".into())));
    let body = ForwardBody::new(StreamBody::new(stream::iter(given)));
    let mut body = setup.observation.unwrap().answered(status, &headers, body);
    let mut seen = Vec::new();
    for part in parts {
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), *part);
        seen.push(setup.recorder.0.lock().clone());
    }
    assert_eq!(body.frame().await.is_some_and(|end| end.is_err()), is_broken);
    drop(body);
    seen.push(setup.recorder.0.lock().clone());
    seen
}

const PODS: &str = "/api/v1/namespaces/a/pods";
const KNOWN: &str = "/api/v1/namespaces/known/pods";
const POD: &str = "/api/v1/namespaces/a/pods/p";
const STATUS: &str = "/api/v1/namespaces/a/pods/p/status";
const EVICTION: &str = "/api/v1/namespaces/a/pods/p/eviction";
const WATCH: &str = "/api/v1/pods?watch=1";
const OBJECT: &str = r#"{"metadata":{"resourceVersion":"9"}}"#;
const MADE_UP: &str = r#"{"metadata":{"resourceVersion":"9000000000000000000"}}"#;
const LIST: &str = r#"{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}"#;
const ADDED: &str = r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}"#;
const MODIFIED: &str = r#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"9"}}}"#;
const GONE: &str = r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410}}"#;

/// A request, its answer with what is told before each part comes out, and what is told before its end.
type Row<'r> = (&'r str, &'r str, u16, &'r str, &'r [(&'r str, &'r str)], &'r str);

#[tokio::test]
async fn what_is_told_before_its_client_knows() {
    // More parameters than are read here: an apiserver that reads them may see that it is a dry run.
    let perhaps_dry = format!("{PODS}?{}dryRun=All", "&".repeat(10_000));
    let perhaps_old = format!("{KNOWN}?{}resourceVersion=0", "&".repeat(10_000));
    let rows: &[Row<'_>] = &[
        // What is held back comes out once the next part is known, and the last part if nothing was found.
        (
            "POST",
            PODS,
            201,
            JSON,
            &[
                (r#"{"metadata":{"na"#, ""),
                (r#"me":"p","resourceVersion":"4"#, "wrote pods 42"),
                (r#"2"}"#, ""),
                ("}", ""),
            ],
            "",
        ),
        ("POST", EVICTION, 201, JSON, &[(r#"{"kind":"Status","#, ""), (r#""metadata":{}}"#, "wrote pods ?")], ""),
        // Deletions and forms that cannot be read are unknown at once.
        ("DELETE", POD, 200, JSON, &[(OBJECT, "wrote pods ?")], ""),
        ("DELETE", PODS, 200, JSON, &[(OBJECT, "wrote pods ?")], ""),
        ("PUT", POD, 200, "", &[(OBJECT, "wrote pods ?")], ""),
        ("POST", &perhaps_dry, 201, JSON, &[(MADE_UP, "wrote pods ?")], ""),
        // What did not happen is not told, and what may have happened is.
        ("PUT", POD, 409, JSON, &[], ""),
        ("PUT", POD, 404, JSON, &[], "no p in pods"),
        ("PUT", POD, 304, JSON, &[], ""),
        ("PUT", POD, 500, JSON, &[], "perhaps wrote pods"),
        ("PUT", POD, 504, JSON, &[], "perhaps wrote pods"),
        // Reads show their revision.
        ("GET", "/api/v1/pods", 200, JSON, &[(LIST, "showed pods 7")], ""),
        ("GET", POD, 200, JSON, &[(LIST, "showed pods 7")], ""),
        ("GET", STATUS, 200, JSON, &[(LIST, "showed pods 7")], ""),
        ("GET", "/api/v1/pods", 200, "", &[(LIST, "showed pods ?")], ""),
        // What the store itself shows may be of a store that was set back.
        ("GET", KNOWN, 200, JSON, &[(LIST, "showed pods 7 after 9")], ""),
        ("GET", &format!("{KNOWN}?limit=5"), 200, JSON, &[(LIST, "showed pods 7 after 9")], ""),
        ("GET", &format!("{KNOWN}?resource%56ersion=0"), 200, JSON, &[(LIST, "showed pods 7")], ""),
        ("GET", &format!("{KNOWN}?limit=5&continue=x"), 200, JSON, &[(LIST, "showed pods 7")], ""),
        ("GET", &perhaps_old, 200, JSON, &[(LIST, "showed pods 7")], ""),
        ("GET", &format!("{KNOWN}/p"), 200, JSON, &[(OBJECT, "showed pods 9")], ""),
        ("GET", "/api/v1/pods", 403, JSON, &[(LIST, "")], ""),
        // Events are told one by one, and not held back. If they cannot be read, each may show something new.
        ("GET", WATCH, 200, JSON, &[(ADDED, "showed pods 7"), (MODIFIED, "showed pods 9")], ""),
        ("GET", WATCH, 200, PROTOBUF, &[("a", "showed pods ?"), ("b", "showed pods ?")], ""),
        ("GET", WATCH, 200, JSON, &[], ""),
        ("GET", WATCH, 200, JSON, &[(GONE, "")], ""),
        // An object that is not there, unless it may be the subresource or the namespace that is missing.
        ("GET", "/api/v1/namespaces/a/pods/p?resourceVersion=0", 404, JSON, &[("none", "no p in pods")], ""),
        ("DELETE", POD, 404, JSON, &[("none", "no p in pods")], ""),
        ("PATCH", POD, 404, JSON, &[("none", "no p in pods")], ""),
        ("GET", STATUS, 404, JSON, &[("none", "")], ""),
        ("POST", PODS, 404, JSON, &[("none", "")], ""),
    ];
    for (method, target, status, media_type, parts, end) in rows {
        let (texts, new): (Vec<_>, Vec<_>) = parts.iter().copied().unzip();
        let seen = pass(begin(method, target), *status, media_type, &texts, false).await;
        let mut told = Vec::new();
        for (seen, new) in seen.into_iter().zip(new.into_iter().chain([*end])) {
            told.extend((!new.is_empty()).then(|| new.to_owned()));
            assert_eq!(seen, told, "{method} {target} {status} {media_type}");
        }
    }
}

#[tokio::test]
async fn a_write_without_an_answer_may_have_happened() {
    let setup = begin("PUT", POD);
    setup.observation.unwrap().unsent();
    assert!(setup.recorder.0.lock().is_empty());
    let setup = begin("PATCH", "/apis/apps/v1/namespaces/a/deployments/d");
    drop(setup.observation);
    assert_eq!(*setup.recorder.0.lock(), ["perhaps wrote deployments"]);
    let seen = pass(begin("PATCH", "/api/v1/nodes/n"), 200, JSON, &["{"], true).await;
    assert_eq!(seen, [["wrote nodes ?"]; 2]);
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
async fn a_watch_over_a_websocket_has_shown_something_when_it_ends() {
    let setup = begin("GET", WATCH);
    let session = setup.observation.unwrap().upgraded();
    assert!(setup.recorder.0.lock().is_empty());
    drop(session);
    assert_eq!(*setup.recorder.0.lock(), ["showed pods ?"]);
}

#[tokio::test]
async fn a_revision_that_a_watch_waited_for_in_vain_is_told() {
    let late = r#"{"type":"ERROR","object":{"kind":"Status","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]},"code":504}}"#;
    let fake = r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"},"spec":{"type":"ERROR","a":"ResourceVersionTooLarge"}}}"#;
    let binary = "\0\0\0\x40\n\x05ERROR\x12\x39k8s\0 Timeout ResourceVersionTooLarge";
    for (raised, events, told) in [
        (true, vec![fake], vec!["showed pods 7"]),
        (true, vec![binary], vec!["pods did not get there"]),
        (true, vec![late], vec!["pods did not get there"]),
        (true, vec![GONE], vec![]),
        (true, vec![ADDED, late], vec!["showed pods 7"]),
        (false, vec![late], vec![]),
    ] {
        let mut request = Request::get("/api/v1/pods?watch=1").body(()).unwrap().into_parts().0;
        if raised {
            request.extensions.insert(AsksForMore);
        }
        let seen = pass(begin_with(&request), 200, JSON, &events, false).await;
        assert_eq!(*seen.last().unwrap(), told, "{raised} {events:?}");
    }
}
