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

pub(super) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
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
    pub(super) async fn brief(&mut self) -> (String, String, u64) {
        let (event, object) = self.event().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rv = text(&object["metadata"]["resourceVersion"]).parse().unwrap_or(0);
        (event, text(&object["metadata"]["name"]), rv)
    }

    pub(super) async fn quiet(&mut self, time: Duration) -> bool {
        self.buffer.is_empty() && tokio::time::timeout(time, self.body.frame()).await.is_err()
    }
}

pub(super) fn brief(event: &str, name: &str, rv: u64) -> (String, String, u64) {
    (event.into(), name.into(), rv)
}

pub(super) async fn server() -> Server {
    Server::builder().start().await.unwrap()
}

#[tokio::test]
async fn gets_and_lists_have_the_apiservers_bytes() {
    let server = server().await;
    let rv = server.create(pod("p", json!({"app": "x"}))).unwrap();
    let (code, headers, body) = text(&server, "/api/v1/namespaces/a/pods/p", &[]).await;
    assert_eq!((code, headers["content-type"].to_str().unwrap()), (200, "application/json"));
    assert!(
        body.starts_with(r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"a","uid":""#),
        "{body}"
    );
    assert!(body.ends_with("}\n"));
    let (_, _, list) = text(&server, "/api/v1/pods", &[]).await;
    let item = body.trim_end().strip_prefix(r#"{"kind":"Pod","apiVersion":"v1","#).unwrap();
    assert_eq!(
        list,
        format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{rv}\"}},\"items\":[{{{item}]}}\n"
        )
    );
    let (_, _, widgets) = text(&server, "/apis/demo.informerd.io/v1/widgets", &[]).await;
    assert_eq!(
        widgets,
        format!(
            "{{\"apiVersion\":\"demo.informerd.io/v1\",\"items\":[],\"kind\":\"WidgetList\",\"metadata\":{{\"continue\":\"\",\"resourceVersion\":\"{rv}\"}}}}\n"
        )
    );
    let (_, _, none) = text(
        &server,
        "/api/v1/secrets",
        &[("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")],
    )
    .await;
    assert_eq!(
        none,
        format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{{\"resourceVersion\":\"{rv}\"}},\"items\":null}}\n"
        )
    );
    let (_, _, partial) = text(
        &server,
        "/api/v1/namespaces/a/pods/p",
        &[("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")],
    )
    .await;
    let partial: Value = serde_json::from_str(&partial).unwrap();
    assert_eq!(
        (&partial["kind"], &partial["metadata"]["labels"]["app"], &partial["spec"]),
        (&json!("PartialObjectMetadata"), &json!("x"), &Value::Null)
    );
    let (code, status) = get(&server, "/api/v1/namespaces/a/pods/q").await;
    assert_eq!((code, &status["message"]), (404, &json!("pods \"q\" not found")));
    assert_eq!(text(&server, "/apis/nope/v1/things", &[]).await.2, "404 page not found\n");
    let (code, _, _) = text(&server, "/api/v1/pods", &[("accept", "application/vnd.kubernetes.protobuf")]).await;
    assert_eq!(code, 406);
}

#[tokio::test]
async fn bookmarks_come_before_the_deadline_and_the_end_is_clean() {
    let server = server().await;
    let mut stream = Stream::open(&server, "allowWatchBookmarks=1&timeoutSeconds=3&resourceVersion=1000000").await;
    assert_eq!(stream.line().await, "", "nothing happened");
    let from = server.revision();
    let mut stream =
        Stream::open(&server, &format!("allowWatchBookmarks=1&timeoutSeconds=3&resourceVersion={from}")).await;
    server.create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "other"}})).unwrap();
    get(&server, &format!("{PODS}?limit=1")).await;
    assert_eq!(stream.brief().await, brief("BOOKMARK", "", server.revision()));
    assert_eq!((stream.line().await, stream.broken), (String::new(), false));
    assert_eq!(server.counts().requests(Verb::Probe, "pods"), 1);
}

#[tokio::test]
async fn writes_over_http() {
    let server = server().await;
    let send = async |method: &str, path: &str, kind: &str, body: Value| {
        let response =
            request(&server, false, method, path, &[("content-type", kind)], &body.to_string()).await.unwrap();
        let code = response.status().as_u16();
        (code, serde_json::from_slice::<Value>(&response.into_body().collect().await.unwrap().to_bytes()).unwrap())
    };
    let (code, made) =
        send("POST", PODS, "application/json", json!({"metadata": {"generateName": "p-"}, "spec": {}})).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    assert_eq!((code, name.len(), &made["status"]["phase"]), (201, 7, &json!("Pending")));
    let path = format!("{PODS}/{name}");
    let (_, patched) =
        send("PATCH", &path, "application/merge-patch+json", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(patched["metadata"]["labels"]["a"], "b");
    let (code, _) = send("PUT", &path, "application/json", made.clone()).await;
    assert_eq!(code, 409, "the old resourceVersion");
    let (_, same) =
        send("PATCH", &path, "application/merge-patch+json", json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(same["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"], "nothing changed");
    let before = server.state("pods");
    let dry = format!("{path}?dryRun=All");
    let (_, dry) =
        send("PATCH", &dry, "application/merge-patch+json", json!({"metadata": {"labels": {"a": "c"}}})).await;
    assert_eq!(
        (&dry["metadata"]["labels"]["a"], server.state("pods")),
        (&json!("c"), before),
        "a dry run stores nothing"
    );
    assert_eq!(send("POST", PODS, "application/json", pod(name, json!({}))).await.0, 409);
    assert_eq!(send("DELETE", &path, "application/json", json!({})).await.0, 200);
    assert!(server.state("pods").is_empty());
}

#[tokio::test]
async fn large_lists_are_compressed_for_whoever_accepts_it() {
    let server = server().await;
    for i in 0..40 {
        server
            .create(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": format!("c{i:02}")},
            "data": {"text": "x".repeat(5000)}}))
            .unwrap();
    }
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
