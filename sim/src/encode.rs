//! The bytes of objects, lists and watch events, as the apiserver writes them.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::proto;
use super::registry::Kind;
use super::stored::Stored;
use crate::types::Status;

/// The members of `ObjectMeta` in the order in which Go writes them. Custom resources are sorted instead.
const METADATA_ORDER: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// The shape of each object that a client requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Full,
    Partial,
    Protobuf,
    Table { objects: RowObject },
}

/// The value of a table row's `object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowObject {
    None,
    Metadata,
    Object,
}

impl Shape {
    pub(super) fn media_type(self, is_watch: bool) -> &'static str {
        match (self, is_watch) {
            (Self::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Self::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
            _ => "application/json",
        }
    }
}

/// The bytes of a GET, without the newline.
pub(super) fn object(kind: &Kind, value: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    match value {
        Value::Object(members) if !kind.custom => ordered(&mut out, members, &["kind", "apiVersion", "metadata"], true),
        _ => write(&mut out, value),
    }
    escape_html(out).into()
}

fn ordered(out: &mut Vec<u8>, members: &Map<String, Value>, first: &[&str], root: bool) {
    let mut separator = b'{';
    let mut member = |name: &str, value: &Value| {
        out.push(separator);
        separator = b',';
        write(out, &Value::String(name.to_owned()));
        out.push(b':');
        match value {
            Value::Object(metadata) if root && name == "metadata" => ordered(out, metadata, METADATA_ORDER, false),
            _ => write(out, value),
        }
    };
    for name in first {
        if let Some(value) = members.get(*name) {
            member(name, value);
        }
    }
    for (name, value) in members.iter().filter(|(name, _)| !first.contains(&name.as_str())) {
        member(name, value);
    }
    if members.is_empty() {
        out.push(b'{');
    }
    out.push(b'}');
}

fn write(out: &mut Vec<u8>, value: &Value) {
    // Writing a Value to memory cannot fail.
    let _ = serde_json::to_writer(out, value);
}

/// Go's encoder escapes `<`, `>` and `&`. They can occur only inside strings.
pub(super) fn escape_html(json: Vec<u8>) -> Vec<u8> {
    if memchr::memchr3(b'<', b'>', b'&', &json).is_none() {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + 64);
    for byte in json {
        match byte {
            b'<' | b'>' | b'&' => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out
}

/// An object in the requested shape, without the newline. Tables have their own writer.
pub(super) fn shaped(shape: Shape, stored: &Stored) -> Bytes {
    match shape {
        Shape::Partial => {
            let mut out = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#.to_vec();
            out.extend_from_slice(stored.metadata());
            out.push(b'}');
            out.into()
        }
        Shape::Protobuf => proto::encode(&stored.value()).into(),
        Shape::Full | Shape::Table { .. } => stored.json.clone(),
    }
}

/// Writes `{"type":…,"object":…}` and a newline, or the same in protobuf with its length in front.
pub(super) fn frame(shape: Shape, kind: &str, object: &[u8]) -> Vec<u8> {
    if shape == Shape::Protobuf {
        return proto::frame(kind, object);
    }
    let mut out = Vec::with_capacity(object.len() + 40);
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out
}

pub(super) fn error_frame(shape: Shape, status: &Status) -> Vec<u8> {
    let json = status.to_json();
    match shape {
        Shape::Protobuf => frame(shape, "ERROR", &proto::encode(&serde_json::from_slice(&json).unwrap_or_default())),
        _ => frame(shape, "ERROR", &json),
    }
}

/// The object of a bookmark: metadata with a resourceVersion, and the annotation that ends the initial events. The members
/// that Go writes although they are empty are left out.
pub(super) fn bookmark_object(kind: &Kind, shape: Shape, rv: u64, initial_events_end: bool) -> Vec<u8> {
    let mut metadata = json!({"resourceVersion": rv.to_string()});
    if initial_events_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let (name, version) = match shape {
        Shape::Partial => ("PartialObjectMetadata".to_owned(), "meta.k8s.io/v1".to_owned()),
        _ => (kind.kind.to_string(), kind.api_version()),
    };
    let object = json!({"apiVersion": version, "kind": name, "metadata": metadata});
    let mut out = Vec::new();
    match &object {
        _ if shape == Shape::Protobuf => return proto::encode(&object),
        Value::Object(members) if !kind.custom || shape == Shape::Partial => {
            ordered(&mut out, members, &["kind", "apiVersion", "metadata"], true);
        }
        sorted => write(&mut out, sorted),
    }
    out
}
