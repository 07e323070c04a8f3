//! As much of Kubernetes' protobuf as tests look at. A string need not be UTF-8.

use prost::Message;

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
    #[prost(bytes = "vec", repeated, tag = "2")]
    items: Vec<Vec<u8>>,
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
    /// `namespace/name`
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", String::from_utf8_lossy(&self.namespace), String::from_utf8_lossy(&self.name))
    }

    pub(crate) fn has_annotation(&self, key: &[u8], value: &[u8]) -> bool {
        self.annotations.iter().any(|entry| entry.key == key && entry.value == value)
    }
}
