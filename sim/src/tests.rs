//! Tests with a raw HTTP client what no test of the daemon shows of the server. That its lists, pages and watches are right is
//! shown by `tests/simulated/seeded`, which holds what the daemon forwards against the log of the store, too.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::*;

pub(super) const PODS: &str = "/api/v1/namespaces/a/pods";

#[expect(clippy::needless_pass_by_value, reason = "so that callers may write json!")]
pub(super) fn pod(name: &str, labels: Value) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "a", "labels": labels}, "spec": {}})
}

pub(super) async fn request(
    server: &Server,
    http2: bool,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
    let client = Client::builder(TokioExecutor::new()).http2_only(http2).build_http::<Full<Bytes>>();
    let mut request = Request::builder().method(method).uri(format!("{}{path}", server.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.request(request.body(Full::from(body.to_owned())).unwrap()).await
}

pub(super) async fn text(server: &Server, path: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
    let response = request(server, false, "GET", path, headers, "").await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

pub(super) async fn get(server: &Server, path: &str) -> (u16, Value) {
    let (code, _, body) = text(server, path, &[]).await;
    (code, serde_json::from_str(&body).unwrap())
}

/// A watch that is read line by line.
pub(super) struct Stream {
    body: Incoming,
    buffer: Vec<u8>,
    pub(super) broken: bool,
}

impl Stream {
    pub(super) async fn open(server: &Server, query: &str) -> Self {
        Self::open_over(server, false, query).await
    }

    pub(super) async fn open_over(server: &Server, http2: bool, query: &str) -> Self {
        let path = format!("{PODS}?watch=1&{query}");
        let response = request(server, http2, "GET", &path, &[], "").await.unwrap();
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), buffer: Vec::new(), broken: false }
    }

    /// The next line. At the end of the body it is the rest, or "".
    pub(super) async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return String::from_utf8_lossy(&line).into_owned();
            }
            match tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await.expect("a frame or the end") {
                Some(Ok(frame)) => self.buffer.extend_from_slice(&frame.into_data().unwrap()),
                end => {
                    self.broken = end.is_some();
                    return String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned();
                }
            }
        }
    }

    pub(super) async fn event(&mut self) -> (String, Value) {
        let line = self.line().await;
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not an event: {line:?}"));
        (event["type"].as_str().unwrap().to_owned(), event["object"].clone())
    }

    /// The type, name and resourceVersion of the next event.
    pub(super) async fn brief(&mut self) -> String {
        let (event, object) = self.event().await;
        let of = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
        format!("{event} {} {}", of("name"), of("resourceVersion"))
    }

    pub(super) async fn quiet(&mut self, time: Duration) -> bool {
        self.buffer.is_empty() && tokio::time::timeout(time, self.body.frame()).await.is_err()
    }
}

pub(super) async fn server() -> Server {
    Server::builder().start().await.unwrap()
}

/// Those of a custom resource have sorted keys, and `<` is escaped as in Go.
#[tokio::test]
async fn gets_and_lists_have_the_apiservers_bytes() {
    let server = server().await;
    let metadata =
        json!({"name": "x", "namespace": "a", "uid": "u", "creationTimestamp": "t", "labels": {"app": "<x>"}});
    let of = |kind: &str, version: &str| json!({"kind": kind, "apiVersion": version, "metadata": metadata});
    let of_pod = server.create(of("Pod", "v1")).unwrap();
    let last = server.create(of("Widget", "demo.informerd.io/v1")).unwrap();
    let (labels, list) = (r#"{"app":"\u003cx\u003e"}"#, format!(r#"{{"resourceVersion":"{last}"}}"#));
    let metadata = format!(
        r#""metadata":{{"name":"x","namespace":"a","uid":"u","resourceVersion":"{of_pod}","creationTimestamp":"t","labels":{labels}}}"#
    );
    let pod = format!(r#"{metadata},"status":{{"phase":"Pending"}}"#);
    let widget = format!(
        r#"{{"apiVersion":"demo.informerd.io/v1","kind":"Widget","metadata":{{"creationTimestamp":"t","labels":{labels},"name":"x","namespace":"a","resourceVersion":"{last}","uid":"u"}}}}"#
    );
    let partial = |list: &str| format!("application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1");
    let meta = r#""apiVersion":"meta.k8s.io/v1""#;
    let json = "application/json".to_owned();
    for (path, accept, expected) in [
        ("/api/v1/namespaces/a/pods/x", &json, format!(r#"{{"kind":"Pod","apiVersion":"v1",{pod}}}"#)),
        (
            "/api/v1/pods",
            &json,
            format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{list},"items":[{{{pod}}}]}}"#),
        ),
        (
            "/apis/demo.informerd.io/v1/widgets",
            &json,
            format!(
                r#"{{"apiVersion":"demo.informerd.io/v1","items":[{widget}],"kind":"WidgetList","metadata":{{"continue":"","resourceVersion":"{last}"}}}}"#
            ),
        ),
        (
            "/api/v1/secrets",
            &partial("List"),
            format!(r#"{{"kind":"PartialObjectMetadataList",{meta},"metadata":{list},"items":null}}"#),
        ),
        (
            "/api/v1/namespaces/a/pods/x",
            &partial(""),
            format!(r#"{{"kind":"PartialObjectMetadata",{meta},{metadata}}}"#),
        ),
    ] {
        let (code, headers, body) = text(&server, path, &[("accept", accept)]).await;
        assert_eq!((code, headers["content-type"].to_str().unwrap()), (200, "application/json"), "{path} {accept}");
        assert_eq!(body, expected + "\n", "{path} {accept}");
    }
    let (code, status) = get(&server, "/api/v1/namespaces/a/pods/q").await;
    assert_eq!((code, &status["message"]), (404, &json!("pods \"q\" not found")));
    assert_eq!(text(&server, "/apis/nope/v1/things", &[]).await.2, "404 page not found\n");
    let (code, _, _) = text(&server, "/api/v1/pods", &[("accept", "application/vnd.kubernetes.protobuf")]).await;
    assert_eq!(code, 406);
}

#[tokio::test]
async fn bookmarks_come_before_the_deadline_and_the_end_is_clean() {
    let server = server().await;
    let open = async |rv: u64| {
        Stream::open(&server, &format!("allowWatchBookmarks=1&timeoutSeconds=3&resourceVersion={rv}")).await
    };
    assert_eq!(open(1_000_000).await.line().await, "", "nothing happened");
    let mut stream = open(server.revision()).await;
    server.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "other"}})).unwrap();
    get(&server, &format!("{PODS}?limit=1")).await;
    assert_eq!(stream.brief().await, format!("BOOKMARK  {}", server.revision()));
    assert_eq!((stream.line().await, stream.broken), (String::new(), false));
    assert_eq!(server.counts().requests(Verb::Probe, "pods"), 1);
}

#[tokio::test]
async fn writes_over_http() {
    let server = server().await;
    let send = async |method: &str, path: &str, body: Value| {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let response =
            request(&server, false, method, path, &[("content-type", kind)], &body.to_string()).await.unwrap();
        let code = response.status().as_u16();
        (code, serde_json::from_slice::<Value>(&response.into_body().collect().await.unwrap().to_bytes()).unwrap())
    };
    let (code, made) = send("POST", PODS, json!({"metadata": {"generateName": "p-"}, "spec": {}})).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!((code, name.len(), &made["status"]["phase"]), (201, 7, &json!("Pending")));
    let (path, labelled) = (format!("{PODS}/{name}"), |a: &str| json!({"metadata": {"labels": {"a": a}}}));
    let (_, patched) = send("PATCH", &path, labelled("b")).await;
    assert_eq!(patched["metadata"]["labels"]["a"], "b");
    assert_eq!(send("PUT", &path, made.clone()).await.0, 409, "the old resourceVersion");
    let (_, same) = send("PATCH", &path, labelled("b")).await;
    assert_eq!(same["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"], "nothing changed");
    let before = server.state("pods");
    let (_, dry) = send("PATCH", &format!("{path}?dryRun=All"), labelled("c")).await;
    assert_eq!(dry["metadata"]["labels"]["a"], "c");
    assert_eq!(server.state("pods"), before, "a dry run stores nothing");
    assert_eq!(send("POST", PODS, pod(name, json!({}))).await.0, 409);
    assert_eq!(send("DELETE", &path, json!({})).await.0, 200);
    assert!(server.state("pods").is_empty());
}

#[tokio::test]
async fn large_lists_are_compressed_for_whoever_accepts_it() {
    let server = server().await;
    let large =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"x": "x".repeat(200_000)}});
    server.create(large).unwrap();
    let (_, headers, plain) = text(&server, "/api/v1/configmaps", &[]).await;
    assert!(!headers.contains_key("content-encoding"));
    let response =
        request(&server, false, "GET", "/api/v1/configmaps", &[("accept-encoding", "gzip")], "").await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let packed = response.into_body().collect().await.unwrap().to_bytes();
    let mut unpacked = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, plain);
}
