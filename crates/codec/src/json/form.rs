//! How the objects of one resource look in JSON: the position of kind and apiVersion, and the order of members.

use std::sync::Arc;

use bytes::Bytes;

use crate::unshown::unshown;
use crate::{Shape, protobuf};
use informerd_meta::EventType;
use informerd_meta::strconv::json_quote;

use super::ordered::Ordered;

/// Where an object carries `kind` and `apiVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Style {
    /// Typed objects of the built-in types. Stored items have no kind and apiVersion. Watch frames and GET bodies
    /// begin with `{"kind":…,"apiVersion":…,`.
    Stripped,
    /// Unstructured objects: custom resources. Their members are sorted, and every object has its own kind and
    /// apiVersion.
    Inline,
}

/// The type that an item states for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMeta {
    pub style: Style,
    /// Empty for an item of a built-in list.
    pub api_version: Arc<str>,
    /// Empty for an item of a built-in list.
    pub kind: Arc<str>,
}

/// The form of one resource. The prefixes of its frames and bodies are built once, here, and all responses share
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub style: Style,
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    /// Stripped items begin with kind and apiVersion in lists, too. Some aggregated API servers write them.
    pub(crate) typed_items: bool,
    /// Annotations that the partial shapes omit.
    pub(super) unshown: &'static [&'static str],
    /// The start of a GET body. A stripped item follows without its opening brace.
    pub(super) body_prefix: Bytes,
    /// The starts of watch frames, by event type. A stripped item follows without its opening brace.
    frame_prefixes: [Bytes; 3],
    /// A cache of event metadata of this resource in the member order of the partial shapes.
    pub(super) ordered: Ordered,
    /// The template of a bookmark is a table row that contains the object.
    pub(super) in_rows: bool,
    /// The form that writes the metadata of these objects in protobuf.
    pub(crate) metadata_in_protobuf: protobuf::Form,
}

// === impl Form ===

impl Form {
    pub fn new(style: Style, api_version: &str, kind: &str, list_kind: &str) -> Self {
        let body = format!("{{\"kind\":{},\"apiVersion\":{},", json_quote(kind), json_quote(api_version));
        let frame = |event: EventType| Bytes::from(format!("{{\"type\":\"{}\",\"object\":{body}", event.as_str()));
        Self {
            style,
            api_version: api_version.into(),
            kind: kind.into(),
            list_kind: list_kind.into(),
            typed_items: false,
            unshown: unshown(api_version, kind),
            frame_prefixes: [frame(EventType::Added), frame(EventType::Modified), frame(EventType::Deleted)],
            body_prefix: body.into(),
            ordered: Ordered::default(),
            in_rows: false,
            metadata_in_protobuf: protobuf::Form::of_json(api_version, kind, list_kind),
        }
    }

    /// Returns the form for objects that upstream sends in the rows of tables.
    pub(crate) fn in_rows(self) -> Self {
        Self { in_rows: true, ..self }
    }

    /// Whether the partial shapes have their own copy of the metadata.
    pub(crate) fn rewrites_metadata(&self) -> bool {
        self.style == Style::Inline || !self.unshown.is_empty()
    }

    pub(super) fn frame_prefix(&self, kind: EventType) -> Bytes {
        let [added, modified, deleted] = &self.frame_prefixes;
        match kind {
            EventType::Added => added.clone(),
            EventType::Modified => modified.clone(),
            EventType::Deleted => deleted.clone(),
        }
    }

    /// The style of this item. A server may write the items of a list differently from the objects of a watch. An
    /// item that has its own kind and apiVersion must not get a second pair.
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
    /// The apiVersion of the partial shapes; `None` for the other shapes.
    pub(super) fn partial_api_version(self) -> Option<&'static str> {
        match self {
            Self::Full | Self::Table(_) => None,
            Self::PartialObjectMetadata => Some("meta.k8s.io/v1"),
            Self::PartialObjectMetadataV1beta1 => Some("meta.k8s.io/v1beta1"),
        }
    }

    /// The start of a partial object. Its metadata follows.
    pub(super) fn partial_prefix(self) -> &'static str {
        match self {
            Self::PartialObjectMetadataV1beta1 => {
                r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":"#
            }
            _ => r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
        }
    }
}
