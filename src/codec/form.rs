//! The one seam between the encodings and everything above them: what is written, without how.

use std::sync::Arc;

use bytes::Bytes;

use crate::meta::{Encoding, EventType, Moment, Object, ResourceVersion, Status};

use super::json::{self, Style};
use super::table::{self, Columns, TableShape};
use super::{Format, Slices, protobuf};

/// In which shape an object is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    Full,
    /// `PartialObjectMetadata`, in lists `PartialObjectMetadataList`, of `meta.k8s.io/v1`.
    PartialObjectMetadata,
    /// The same of `meta.k8s.io/v1beta1`.
    PartialObjectMetadataV1beta1,
    /// A row of a `Table`.
    Table(TableShape),
}

/// The metadata of a list to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListMetaOut {
    pub rv: ResourceVersion,
    pub continue_token: Option<String>,
    pub remaining: Option<i64>,
    /// The selector of the shard that the list is of.
    pub shard: Option<String>,
    /// Bytes of all items as [`Form::list_item`] writes them, which protobuf tells in front of them; JSON does not look.
    pub items_len: u64,
}

/// What one resource's objects look like in the encoding that its cache holds them in. It writes every answer made of
/// them; objects that were decoded for another encoding must not be given to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    Json(json::Form),
    Protobuf(protobuf::Form),
    Table(table::Form),
}

// === impl Shape ===

impl Shape {
    /// The same, telling times relative to now as they are now.
    pub fn as_of_now(self) -> Self {
        match self {
            Self::Table(shape) => Self::Table(TableShape { now: Moment::now(), ..shape }),
            other => other,
        }
    }

    /// The shape of what follows the first event of a watch.
    pub fn after_first(self) -> Self {
        match self {
            Self::Table(shape) => Self::Table(TableShape { no_headers: true, ..shape }),
            other => other,
        }
    }

    /// Whether what is written depends on when it is written.
    pub fn tells_time(self) -> bool {
        matches!(self, Self::Table(_))
    }

    /// As tables are asked for. What holds no rows is never asked for one; it answers with the default.
    fn of_table(self) -> TableShape {
        match self {
            Self::Table(shape) => shape,
            _ => TableShape::default(),
        }
    }
}

// === impl Form ===

impl Form {
    pub fn new(encoding: Encoding, style: Style, api_version: &str, kind: &str, list_kind: &str) -> Self {
        match encoding {
            Encoding::Json | Encoding::Table => Self::Json(json::Form::new(style, api_version, kind, list_kind)),
            Encoding::Protobuf => Self::Protobuf(protobuf::Form::new(api_version, kind, list_kind)),
        }
    }

    /// Rows of tables with these columns, instead of the objects alone.
    pub fn with_columns(self, columns: Arc<Columns>) -> Self {
        match self {
            Self::Json(json) | Self::Table(table::Form { json, .. }) => Self::Table(table::Form::new(json, columns)),
            Self::Protobuf(_) => self,
        }
    }

    pub fn columns(&self) -> Option<&Arc<Columns>> {
        match self {
            Self::Table(form) => Some(&form.columns),
            Self::Json(_) | Self::Protobuf(_) => None,
        }
    }

    /// The form of the objects alone, where rows hold them.
    pub fn objects(self: &Arc<Self>) -> Arc<Self> {
        match &**self {
            Self::Table(form) => Arc::clone(form.objects()),
            Self::Json(_) | Self::Protobuf(_) => Arc::clone(self),
        }
    }

    pub fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
            Self::Table(_) => Encoding::Table,
        }
    }

    /// The form in which the metadata of these objects is written in protobuf, whichever encoding they are kept in.
    pub fn metadata_in_protobuf(self: &Arc<Self>) -> Arc<Self> {
        match &**self {
            Self::Json(form) | Self::Table(table::Form { json: form, .. }) => form.metadata_in_protobuf(),
            Self::Protobuf(_) => Arc::clone(self),
        }
    }

    /// How kind and apiVersion stand in the objects.
    pub fn style(&self) -> Style {
        match self {
            Self::Json(form) => form.style,
            Self::Table(form) => form.style(),
            // Messages never hold their type.
            Self::Protobuf(_) => Style::Stripped,
        }
    }

    pub fn api_version(&self) -> &Arc<str> {
        match self {
            Self::Json(form) | Self::Table(table::Form { json: form, .. }) => &form.api_version,
            Self::Protobuf(form) => &form.api_version,
        }
    }

    pub fn kind(&self) -> &Arc<str> {
        match self {
            Self::Json(form) | Self::Table(table::Form { json: form, .. }) => &form.kind,
            Self::Protobuf(form) => &form.kind,
        }
    }

    pub fn list_kind(&self) -> &Arc<str> {
        match self {
            Self::Json(form) | Self::Table(table::Form { json: form, .. }) => &form.list_kind,
            Self::Protobuf(form) => &form.list_kind,
        }
    }

    /// The media type of bodies, or of a watch's stream.
    pub fn media_type(&self, stream: bool) -> &'static str {
        Format::media_type(self.encoding(), stream)
    }

    /// The object alone. `rv_override` as in [`Self::event_frame`].
    pub fn object(&self, object: &Object, rv_override: Option<ResourceVersion>, shape: Shape) -> Slices {
        match self {
            Self::Json(form) => json::object_bytes(form, object, rv_override, shape),
            Self::Protobuf(form) => protobuf::object_bytes(form, object, rv_override, shape),
            Self::Table(form) => form.table(object, rv_override, shape.of_table()),
        }
    }

    /// The body of a GET.
    pub fn object_body(&self, object: &Object, shape: Shape) -> Slices {
        match self {
            Self::Json(form) => json::object_body(form, object, shape),
            Self::Protobuf(form) => protobuf::object_bytes(form, object, None, shape),
            Self::Table(form) => form.object_body(object, shape.of_table()),
        }
    }

    /// Everything before the first item of a list. `empty` says that no item will follow.
    pub fn list_head(&self, shape: Shape, meta: &ListMetaOut, empty: bool) -> Slices {
        match self {
            Self::Json(form) => json::list_head(form, shape, meta, empty).into(),
            Self::Protobuf(form) => protobuf::list_head(form, shape, meta).into(),
            Self::Table(form) => form.head(shape.of_table(), meta, empty),
        }
    }

    /// The part of [`ListMetaOut::items_len`] that is this item's; zero where nobody needs it.
    pub fn item_len(&self, object: &Object, shape: Shape) -> u64 {
        match self {
            Self::Json(_) | Self::Table(_) => 0,
            Self::Protobuf(form) => protobuf::item_len(form, object, shape),
        }
    }

    /// One item, with what parts it from the next unless it is the last one.
    pub fn list_item(&self, object: &Object, shape: Shape, last: bool) -> Slices {
        match self {
            Self::Json(form) => json::list_item(form, object, shape, last),
            Self::Protobuf(form) => protobuf::list_item(form, object, shape),
            Self::Table(form) => {
                let mut out = Slices::new();
                form.push_row(&mut out, object, None, shape.of_table());
                out.push_static(if last { b"" } else { b"," });
                out
            }
        }
    }

    /// Everything after the last item. To be called with what [`Self::list_head`] was called with.
    pub fn list_tail(&self, shape: Shape, meta: &ListMetaOut, empty: bool) -> Slices {
        match self {
            Self::Json(form) => json::list_tail(form, shape, meta, empty).into(),
            Self::Protobuf(_) => protobuf::list_tail(shape, meta).into(),
            Self::Table(form) => form.tail(empty).into(),
        }
    }

    /// One event of a watch. `rv_override` replaces the object's resourceVersion: an object that leaves a watcher's
    /// selection is sent in its last selected state, with the resourceVersion of the change.
    pub fn event_frame(
        &self,
        kind: EventType,
        object: &Object,
        rv_override: Option<ResourceVersion>,
        shape: Shape,
    ) -> Slices {
        match self {
            Self::Json(form) => json::event_frame(form, kind, object, rv_override, shape),
            Self::Protobuf(form) => protobuf::event_frame(form, kind, object, rv_override, shape),
            Self::Table(form) => form.event_frame(kind, object, rv_override, shape.of_table()),
        }
    }

    /// A BOOKMARK of a watch. `template` is the object of a bookmark that upstream sent for this type, in this encoding.
    pub fn bookmark_frame(
        &self,
        template: Option<&Bytes>,
        rv: ResourceVersion,
        initial_events_end: bool,
        shape: Shape,
    ) -> Bytes {
        match self {
            Self::Json(form) => json::bookmark_frame(form, template, rv, initial_events_end, shape),
            Self::Protobuf(form) => protobuf::bookmark_frame(form, template, rv, initial_events_end, shape),
            Self::Table(form) => form.bookmark_frame(template, rv, initial_events_end, shape.of_table()),
        }
    }

    /// The ERROR of a watch; nothing may follow it.
    pub fn error_frame(&self, status: &Status) -> Bytes {
        match self {
            Self::Json(_) | Self::Table(_) => json::error_frame(status),
            Self::Protobuf(_) => protobuf::error_frame(status),
        }
    }
}
