//! What happens to a selection, a line for each event with the object's bytes, whoever tells it.

use base64::Engine as _;
use informerd::grpc::pb::v1;
use prost::Message;
use serde_json::Value;

use super::fixtures::{Client, Frames, kind_of, list, newest, started, watch_from};
use crate::support::client::{Client as Http, Watch, key, rv};
use crate::support::proto::{Envelope, WatchEvent};

/// The last write, which every selection sees.
pub(crate) const LAST: &str = "last";

/// `namespace/name@revision` and the uid, read out of an object's bytes.
pub(super) fn identity(encoding: v1::Encoding, object: &[u8]) -> (String, String) {
    if encoding == v1::Encoding::Json {
        let value: Value = serde_json::from_slice(object).unwrap();
        return (
            format!("{}@{}", key(&value), rv(&value)),
            value["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        );
    }
    let metadata = Envelope::open(object).unwrap().metadata().unwrap();
    (format!("{}@{}", metadata.key(), metadata.resource_version), metadata.uid)
}

/// The message in an envelope.
pub(super) fn message(envelope: &[u8]) -> Vec<u8> {
    Envelope::open(envelope).unwrap().message
}

pub(crate) fn line(kind: &str, encoding: v1::Encoding, object: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(object);
    format!("{kind} {} {text}", identity(encoding, object).0)
}

pub(crate) fn line_of(event: &v1::Event, encoding: v1::Encoding) -> String {
    line(kind_of(event), encoding, &event.object)
}

/// The kind and the object of an event in JSON by HTTP.
pub(crate) fn parts(event: &str) -> (&str, &[u8]) {
    let (kind, object) = event.strip_prefix("{\"type\":\"").unwrap().split_once("\",\"object\":").unwrap();
    (kind, object.trim_end().strip_suffix('}').unwrap().as_bytes())
}

/// The object's bytes in a line.
pub(super) fn object_of(line: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(line.rsplit_once(' ').unwrap().1).unwrap()
}

pub(crate) fn is_last(line: &str) -> bool {
    line.contains(&format!("/{LAST}@"))
}

pub(crate) fn accept(encoding: v1::Encoding) -> &'static str {
    if encoding == v1::Encoding::Json { "application/json" } else { "application/vnd.kubernetes.protobuf" }
}

/// A watch by HTTP, up to the last write.
pub(crate) async fn by_http(mut watch: Watch, encoding: v1::Encoding) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        let (kind, object) = match encoding {
            v1::Encoding::Json => {
                let line = watch.next_line().await.unwrap().unwrap();
                let (kind, object) = parts(&line);
                (kind.to_owned(), object.to_vec())
            }
            _ => {
                let frame = watch.next_frame().await.unwrap().unwrap();
                let event = WatchEvent::decode(&frame[4..]).unwrap();
                (event.kind.clone(), event.object())
            }
        };
        if kind != "BOOKMARK" {
            told.push(line(&kind, encoding, &object));
            if is_last(told.last().unwrap()) {
                return told;
            }
        }
    }
}

/// Whether a watch goes on from a revision, instead of beginning anew.
pub(super) async fn resumes(mut client: Client, selection: v1::Selection, from: u64) -> bool {
    let mut frames = Frames::open(&mut client, watch_from(selection, from)).await;
    started(&frames.tell().await)
}

/// A watch by gRPC, up to the last write; at each `cut`th event the call is dropped and resumed.
pub(super) async fn by_grpc(mut client: Client, selection: v1::Selection, from: u64, cut: usize) -> Vec<String> {
    let encoding = selection.encoding();
    let mut frames = Frames::open(&mut client, watch_from(selection.clone(), from)).await;
    let first = frames.tell().await;
    assert!(started(&first), "{first:?}");
    let (mut told, mut since) = (Vec::new(), 0);
    loop {
        for event in frames.events(1).await {
            let key = event.key.clone().unwrap();
            let said = (format!("{}/{}@{}", key.namespace, key.name, key.resource_version), key.uid);
            assert_eq!(identity(encoding, &event.object), said);
            told.push(line_of(&event, encoding));
            since += 1;
            if is_last(told.last().unwrap()) {
                return told;
            }
        }
        if since >= cut {
            since = 0;
            frames = Frames::resumed(&mut client, selection.clone(), &frames.token).await;
        }
    }
}

/// The state by HTTP.
pub(super) async fn state_by_http(http: &Http, path: &str, encoding: v1::Encoding) -> Vec<String> {
    let headers = [("accept", accept(encoding))];
    let answer = http.request(http::Method::GET, path, &headers, "").await;
    if encoding == v1::Encoding::Json {
        // Items of a list lack their kind and apiVersion.
        let items = answer.json()["items"].as_array().unwrap().clone();
        return items.iter().map(|item| format!("STATE {}@{} {item}", key(item), rv(item))).collect();
    }
    let items = Envelope::open(&answer.body).unwrap().items().unwrap();
    items.iter().map(|item| format!("STATE {item:?}")).collect()
}

/// The state by gRPC, in the words of [`state_by_http`].
pub(super) async fn state_by_grpc(client: &mut Client, selection: v1::Selection) -> Vec<String> {
    let encoding = selection.encoding();
    let (header, objects) = list(client, newest(selection)).await;
    assert_eq!(header.encoding(), encoding);
    let as_item = |object: &v1::Object| {
        if encoding == v1::Encoding::Json {
            let mut item: Value = serde_json::from_slice(&object.object).unwrap();
            let item_map = item.as_object_mut().unwrap();
            assert!(item_map.remove("kind").is_some() && item_map.remove("apiVersion").is_some());
            format!("STATE {}@{} {item}", key(&item), rv(&item))
        } else {
            format!("STATE {:?}", message(&object.object))
        }
    };
    objects.iter().map(as_item).collect()
}
