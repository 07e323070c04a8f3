//! As much of Kubernetes' protobuf as tests look at. A string need not be UTF-8.

use prost::Message;
use serde_json::{Map, Value, json};

/// An event of a watch, and the envelope of its object.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchEvent {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

/// `runtime.Unknown`, behind `k8s\0`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Envelope {
    #[prost(message, optional, tag = "1")]
    of: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    pub message: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(bytes = "vec", tag = "2")]
    kind: Vec<u8>,
}

/// Any object.
#[derive(Clone, PartialEq, Message)]
struct Object {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    namespace: Vec<u8>,
    #[prost(string, tag = "5")]
    pub uid: String,
    #[prost(string, tag = "6")]
    pub resource_version: String,
    #[prost(message, repeated, tag = "12")]
    annotations: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Any list.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct ListMeta {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    next: String,
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "6")]
    code: i32,
}

/// An object, a list or a Status in an envelope, with as much of it as is known here, in the members of JSON. A list has
/// those of its items that can be decoded.
pub(crate) fn value(bytes: &[u8]) -> Option<Value> {
    let envelope = Envelope::open(bytes)?;
    let kind = envelope.of.as_ref().map_or(&[][..], |of| &of.kind[..]);
    if kind == b"Status" {
        return Some(json!({"kind": "Status", "code": Status::decode(&*envelope.message).ok()?.code}));
    }
    if kind.ends_with(b"List") {
        let List { metadata, items } = List::decode(&*envelope.message).ok()?;
        let ListMeta { resource_version, next } = metadata?;
        let items = items.iter().filter_map(|item| Some(Object::decode(&**item).ok()?.metadata?.value()));
        let metadata = json!({"resourceVersion": resource_version, "continue": next});
        return Some(json!({"metadata": metadata, "items": items.collect::<Vec<_>>()}));
    }
    Some(envelope.metadata()?.value())
}

/// The same of a watch event.
pub(crate) fn event(bytes: &[u8]) -> Option<Value> {
    let event = WatchEvent::decode(bytes).ok()?;
    Some(json!({"type": event.kind, "object": value(&event.object())?}))
}

impl WatchEvent {
    /// The envelope of its object.
    pub(crate) fn object(self) -> Vec<u8> {
        self.object.unwrap_or_default().raw
    }
}

impl Envelope {
    pub(crate) fn open(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes.strip_prefix(b"k8s\0")?).ok()
    }

    pub(crate) fn is_status(&self) -> bool {
        self.of.as_ref().is_some_and(|of| of.kind == b"Status")
    }

    /// Of an object.
    pub(crate) fn metadata(&self) -> Option<Metadata> {
        Object::decode(&*self.message).ok()?.metadata
    }

    /// Of a list.
    pub(crate) fn items(&self) -> Option<Vec<Vec<u8>>> {
        List::decode(&*self.message).ok().map(|list| list.items)
    }
}

impl Metadata {
    fn value(&self) -> Value {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let namespace = (!self.namespace.is_empty()).then(|| text(&self.namespace));
        let annotations = self.annotations.iter().map(|entry| (text(&entry.key), Value::String(text(&entry.value))));
        json!({"metadata": {
            "name": text(&self.name), "namespace": namespace, "uid": self.uid,
            "resourceVersion": self.resource_version, "annotations": annotations.collect::<Map<_, _>>(),
        }})
    }

    /// `namespace/name`
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", String::from_utf8_lossy(&self.namespace), String::from_utf8_lossy(&self.name))
    }

    pub(crate) fn has_annotation(&self, key: &[u8], value: &[u8]) -> bool {
        self.annotations.iter().any(|entry| entry.key == key && entry.value == value)
    }
}
