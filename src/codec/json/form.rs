//! How one resource's objects stand in JSON: where kind and apiVersion are, and in which order members come.

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::unshown::unshown;
use crate::codec::{self, Shape, protobuf};
use crate::meta::EventType;

use super::ordered::Ordered;
use super::text::push_string;

/// Where `kind` and `apiVersion` stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Style {
    /// Typed objects, the built-in types: items are kept without them, watch frames and GET bodies begin
    /// `{"kind":…,"apiVersion":…,`.
    Stripped,
    /// Unstructured objects, the custom resources: members are sorted, and every object carries its own.
    Inline,
}

/// What an item said about its own type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMeta {
    pub style: Style,
    /// Empty for an item of a built-in list.
    pub api_version: Arc<str>,
    /// Empty for an item of a built-in list.
    pub kind: Arc<str>,
}

/// The form of one resource. The prefixes of its frames and bodies are built once, here, and shared by all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub style: Style,
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    /// Annotations that the partial shapes leave out.
    pub(super) unshown: &'static [&'static str],
    /// What stands before the members of a stripped item in a GET body.
    body_prefix: Bytes,
    /// What stands before the members of a stripped item in a watch frame, by event type.
    frame_prefixes: [Bytes; 3],
    ordered: Ordered,
    /// A bookmark's template is the row of a table that holds it.
    pub(super) in_rows: bool,
    metadata_in_protobuf: Arc<codec::Form>,
}

// === impl Form ===

impl Form {
    pub fn new(style: Style, api_version: &str, kind: &str, list_kind: &str) -> Self {
        let mut body = String::from("{\"kind\":");
        push_string(&mut body, kind);
        body.push_str(",\"apiVersion\":");
        push_string(&mut body, api_version);
        body.push(',');
        let frame = |event: EventType| Bytes::from(format!("{{\"type\":\"{}\",\"object\":{body}", event.as_str()));
        Self {
            style,
            api_version: api_version.into(),
            kind: kind.into(),
            list_kind: list_kind.into(),
            unshown: unshown(api_version, kind),
            frame_prefixes: [frame(EventType::Added), frame(EventType::Modified), frame(EventType::Deleted)],
            body_prefix: body.into(),
            ordered: Ordered::default(),
            in_rows: false,
            metadata_in_protobuf: Arc::new(codec::Form::Protobuf(protobuf::Form::of_json(
                api_version,
                kind,
                list_kind,
            ))),
        }
    }

    /// The same for objects that come in the rows of tables.
    pub fn in_rows(self) -> Self {
        Self { in_rows: true, ..self }
    }

    /// The form in which the metadata of these objects is written in protobuf.
    pub fn metadata_in_protobuf(&self) -> Arc<codec::Form> {
        Arc::clone(&self.metadata_in_protobuf)
    }

    /// Begins a GET body; the item follows without its opening brace.
    pub(super) fn body_prefix(&self) -> Bytes {
        self.body_prefix.clone()
    }

    /// Begins a watch frame; the item follows without its opening brace.
    pub(super) fn frame_prefix(&self, kind: EventType) -> Bytes {
        let [added, modified, deleted] = &self.frame_prefixes;
        match kind {
            EventType::Added => added.clone(),
            EventType::Modified => modified.clone(),
            EventType::Deleted => deleted.clone(),
        }
    }

    /// Metadata of this resource's events in the order of the partial shapes.
    pub(super) fn ordered(&self) -> &Ordered {
        &self.ordered
    }

    /// How this item is kept. A server may write the items of its lists and the objects of its watches differently;
    /// an item that has its own kind and apiVersion must not get a second pair.
    pub(super) fn style_of(&self, item: &[u8]) -> Style {
        const OWN: [&[u8]; 2] = [b"{\"apiVersion\":", b"{\"kind\":"];
        if self.style == Style::Stripped && OWN.iter().any(|own| item.starts_with(own)) {
            return Style::Inline;
        }
        self.style
    }
}

// === impl Shape ===

impl Shape {
    /// The apiVersion of the partial shapes; `None` for the full one.
    pub(super) fn partial_api_version(self) -> Option<&'static str> {
        match self {
            Self::Full | Self::Table(_) => None,
            Self::PartialObjectMetadata => Some("meta.k8s.io/v1"),
            Self::PartialObjectMetadataV1beta1 => Some("meta.k8s.io/v1beta1"),
        }
    }

    /// Begins a partial object; its metadata follows.
    pub(super) fn partial_prefix(self) -> Bytes {
        Bytes::from_static(match self {
            Self::PartialObjectMetadataV1beta1 => {
                br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":"#
            }
            _ => br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
        })
    }
}
