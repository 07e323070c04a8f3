//! Clients and messages that several tests use.

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd_sim::Server;
use prost::Message as _;
use serde_json::{Value, json};
use std::time::Duration;

use tonic::transport::Channel;
use tonic_types::pb::{ErrorInfo, RetryInfo, Status as RpcStatus};
pub(crate) use v1::watch_response::Frame;

pub(super) use crate::daemon::fixtures::config_map;
use crate::support::grpc;
pub(crate) use crate::support::grpc::{add, all, filtered, join, list_of, namespace, resource, watch_of};
use crate::support::{Through, within};

pub(crate) type Client = ObjectsClient<Channel>;

pub(super) async fn channel(through: &Through) -> Channel {
    grpc::channel(&through.url).await
}

pub(crate) async fn client(through: &Through) -> Client {
    grpc::objects(&through.url).await
}

/// A daemon before a simulated apiserver that has these objects, and a client of it.
pub(super) async fn simulated<const N: usize>(objects: [Value; N], yaml: &str) -> (Server, Through, Client) {
    let (server, through, _) = Through::simulated(objects, yaml).await;
    let client = client(&through).await;
    (server, through, client)
}

pub(crate) fn labels(selector: &str) -> v1::Filter {
    v1::Filter { label_selector: selector.into(), ..Default::default() }
}

pub(super) fn index(index: v1::Index, values: &[&str]) -> v1::Filter {
    let key = Some(v1::index_term::Key::Index(index.into()));
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    v1::Filter { index: vec![v1::IndexTerm { key, values }], ..Default::default() }
}

pub(super) fn consistent() -> v1::Consistency {
    v1::Consistency { bound: Some(v1::consistency::Bound::Consistent(true)), max_staleness: None }
}

/// Of the newest state.
pub(super) fn newest(selection: v1::Selection) -> v1::ListRequest {
    v1::ListRequest { consistency: Some(consistent()), ..list_of(selection) }
}

pub(super) fn get_of(resource: v1::Resource, namespace: &str, name: &str) -> v1::GetRequest {
    v1::GetRequest { resource: Some(resource), namespace: namespace.into(), name: name.into(), ..Default::default() }
}

pub(super) fn labelled(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels}, "data": {},
    })
}

/// A list, whole: its header and its objects.
pub(crate) async fn list(client: &mut Client, request: v1::ListRequest) -> (v1::ListHeader, Vec<v1::Object>) {
    let mut stream = client.list(request).await.unwrap().into_inner();
    let first = within("the next part of the list", stream.message()).await.unwrap().unwrap();
    let Some(v1::list_response::Part::Header(header)) = first.part else { panic!("no header: {first:?}") };
    let mut objects = Vec::new();
    while let Some(message) = within("the next part of the list", stream.message()).await.unwrap() {
        let Some(v1::list_response::Part::Chunk(chunk)) = message.part else { panic!("no chunk: {message:?}") };
        assert!(!chunk.objects.is_empty());
        objects.extend(chunk.objects);
    }
    (header, objects)
}

pub(super) fn keys(objects: &[v1::Object]) -> Vec<String> {
    let key = |object: &v1::Object| {
        let key = object.key.as_ref().unwrap();
        format!("{}/{}", key.namespace, key.name)
    };
    objects.iter().map(key).collect()
}

pub(crate) fn resume(selection: v1::Selection, token: &[u8]) -> v1::WatchRequest {
    let start = Some(v1::watch_request::Start::ResumeToken(token.to_vec().into()));
    v1::WatchRequest { start, ..watch_of(selection) }
}

pub(crate) fn watch_from(selection: v1::Selection, rv: u64) -> v1::WatchRequest {
    let start = Some(v1::watch_request::Start::FromResourceVersion(rv.to_string()));
    v1::WatchRequest { start, ..watch_of(selection) }
}

/// What a watch says, and what its frames promise.
pub(super) struct Frames {
    stream: tonic::Streaming<v1::WatchResponse>,
    last: u64,
    /// Of the last frame.
    pub token: Vec<u8>,
}

impl Frames {
    pub(super) async fn open(client: &mut Client, request: v1::WatchRequest) -> Self {
        Self::new(client.watch(request).await.unwrap_or_else(|status| panic!("{status:?}")))
    }

    /// A watch that has told the state.
    pub(super) async fn begun(client: &mut Client, request: v1::WatchRequest) -> Self {
        let mut frames = Self::open(client, request).await;
        assert!(!started(&frames.tell().await), "it begins with the state");
        frames.snapshot().await;
        frames
    }

    /// A watch that goes on from a token.
    pub(super) async fn resumed(client: &mut Client, selection: v1::Selection, token: &[u8]) -> Self {
        let mut frames = Self::open(client, resume(selection, token)).await;
        assert!(started(&frames.tell().await), "resumed");
        frames
    }

    pub(super) fn new(response: tonic::Response<tonic::Streaming<v1::WatchResponse>>) -> Self {
        Self { stream: response.into_inner(), last: 0, token: Vec::new() }
    }

    /// `None` at the end of the call, which must be OK.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        let next = within("a frame", self.stream.message()).await;
        let response = next.unwrap_or_else(|status| panic!("{status:?}"))?;
        assert!(!response.resume_token.is_empty(), "every frame has a token");
        let frame = response.frame.unwrap();
        if matches!(frame, Frame::Reset(_)) {
            self.last = 0;
        } else if !response.resource_version.is_empty() {
            let rv = response.resource_version.parse().unwrap();
            assert!(rv >= self.last, "{rv} after {}: {frame:?}", self.last);
            self.last = rv;
        }
        self.token = response.resume_token.to_vec();
        Some(frame)
    }

    /// The next frame that is no bookmark.
    pub(super) async fn tell(&mut self) -> Frame {
        loop {
            match self.next().await.expect("the watch has ended") {
                Frame::Bookmark(_) => {}
                frame => return frame,
            }
        }
    }

    /// The snapshot that follows, as its events; the frame that ends it.
    pub(super) async fn snapshot(&mut self) -> (Vec<v1::Event>, v1::SnapshotEnd) {
        let mut events = Vec::new();
        loop {
            match self.tell().await {
                Frame::Events(batch) => events.extend(batch.events),
                Frame::SnapshotEnd(end) => return (events, end),
                other => panic!("in a snapshot: {other:?}"),
            }
        }
    }

    /// The next events, at least so many.
    pub(super) async fn events(&mut self, count: usize) -> Vec<v1::Event> {
        let mut events = Vec::new();
        while events.len() < count {
            match self.tell().await {
                Frame::Events(batch) => events.extend(batch.events),
                other => panic!("instead of events: {other:?}"),
            }
        }
        events
    }
}

/// `ADDED a/one@7`
pub(super) fn said(events: &[v1::Event]) -> Vec<String> {
    events.iter().map(say).collect()
}

fn say(event: &v1::Event) -> String {
    let key = event.key.as_ref().unwrap();
    format!("{} {}/{}@{}", kind_of(event), key.namespace, key.name, key.resource_version)
}

pub(super) fn kind_of(event: &v1::Event) -> &'static str {
    event.r#type().as_str_name().trim_start_matches("TYPE_")
}

pub(super) fn started(frame: &Frame) -> bool {
    match frame {
        Frame::Started(started) => started.resumed,
        other => panic!("instead of a start: {other:?}"),
    }
}

/// An error's reason, when to try again, and the apiserver's own Status.
pub(super) fn details(status: &tonic::Status) -> (String, Option<Duration>, Option<Value>) {
    let whole = RpcStatus::decode(status.details()).unwrap();
    assert_eq!((whole.code, whole.message.as_str()), (status.code() as i32, status.message()));
    let of = |name: &str| whole.details.iter().find(|any| any.type_url == format!("type.googleapis.com/{name}"));
    let info = ErrorInfo::decode(&*of("google.rpc.ErrorInfo").expect("every error says why").value).unwrap();
    assert_eq!(info.domain, "informerd.io");
    let retry = of("google.rpc.RetryInfo").map(|any| RetryInfo::decode(&*any.value).unwrap().retry_delay.unwrap());
    let json = of("informerd.v1.KubernetesStatus").map(|any| v1::KubernetesStatus::decode(&*any.value).unwrap().json);
    let json = json.map(|json| serde_json::from_slice(&json).unwrap());
    (info.reason, retry.map(|retry| retry.try_into().unwrap()), json)
}
