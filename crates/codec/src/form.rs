//! The only interface between the encodings and the layers above. It names what is written and hides how it is
//! encoded.

use std::sync::Arc;

use bytes::Bytes;

use informerd_meta::{Damaged, Encoding, EventType, Object, ResourceVersion, Status};

use super::json::{self, Style};
use super::table::{self, Columns};
use super::{Format, ListMetaOut, Shape, Slices, protobuf};

/// How the objects of one resource look in the encoding that its cache stores. It writes every response that contains
/// them. Do not pass it objects that were decoded for another encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    Json(json::Form),
    Protobuf(protobuf::Form),
    Table(table::Form),
}

// === impl Form ===

impl Form {
    pub fn new(encoding: Encoding, style: Style, api_version: &str, kind: &str, list_kind: &str) -> Self {
        match encoding {
            Encoding::Json | Encoding::Table => Self::Json(json::Form::new(style, api_version, kind, list_kind)),
            Encoding::Protobuf => Self::Protobuf(protobuf::Form::new(api_version, kind, list_kind)),
        }
    }

    /// Returns a form that writes kind and apiVersion in the items of lists as in watch events.
    pub fn with_typed_items(mut self, typed_items: bool) -> Self {
        if let Self::Json(json) = &mut self {
            json.typed_items = typed_items;
        }
        self
    }

    /// Returns a form that writes table rows with these columns, instead of plain objects.
    pub fn with_columns(self, columns: Arc<Columns>) -> Self {
        match self {
            Self::Json(json) | Self::Table(table::Form { json, .. }) => Self::Table(table::Form { json, columns }),
            Self::Protobuf(_) => self,
        }
    }

    pub fn columns(&self) -> Option<&Arc<Columns>> {
        match self {
            Self::Table(form) => Some(&form.columns),
            Self::Json(_) | Self::Protobuf(_) => None,
        }
    }

    /// The form of the plain objects, for a form whose cache holds rows.
    pub fn objects(self: &Arc<Self>) -> Arc<Self> {
        match &**self {
            Self::Table(form) => Arc::new(Self::Json(form.json.clone().in_rows())),
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

    /// The form that writes the metadata of these objects in protobuf, whatever encoding the cache stores.
    pub fn metadata_in_protobuf(self: &Arc<Self>) -> Arc<Self> {
        match &**self {
            Self::Json(form) | Self::Table(table::Form { json: form, .. }) => {
                Arc::new(Self::Protobuf(form.metadata_in_protobuf.clone()))
            }
            Self::Protobuf(_) => Arc::clone(self),
        }
    }

    /// Where the objects carry kind and apiVersion.
    pub fn style(&self) -> Style {
        match self {
            Self::Json(form) | Self::Table(table::Form { json: form, .. }) => form.style,
            // Protobuf messages never contain their own type.
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

    /// The media type of response bodies, or of a watch stream.
    pub fn media_type(&self, stream: bool) -> &'static str {
        Format::media_type(self.encoding(), stream)
    }

    /// The most bytes that only this answer has of what it writes of an object: unpacked, printed or rewritten ones. Others
    /// are shared. A few bytes around an object do not count.
    pub fn copied(&self, object: &Object, rv_override: Option<ResourceVersion>, shape: Shape) -> usize {
        let (row, shape) = match (self, object.row()) {
            (Self::Table(_), Some(row)) => {
                let printed = if row.holes.is_empty() { 0 } else { row.head.len() };
                (printed, shape.of_table().object_shape())
            }
            _ => (0, Some(shape)),
        };
        let Some(shape) = shape else { return row };
        if object.is_packed() {
            return row + object.framed_len();
        }
        let is_rewritten = match self {
            Self::Json(form) | Self::Table(table::Form { json: form, .. }) => {
                shape != Shape::Full && form.rewrites_metadata()
            }
            Self::Protobuf(_) => shape != Shape::Full || rv_override.is_some(),
        };
        row + if is_rewritten { object.metadata_len() } else { 0 }
    }

    /// Writes one object without any framing. `rv_override` has the same meaning as in [`Self::event_frame`].
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub fn object(
        &self,
        object: &Object,
        rv_override: Option<ResourceVersion>,
        shape: Shape,
    ) -> Result<Slices, Damaged> {
        match self {
            Self::Json(form) => json::object_bytes(form, object, rv_override, shape),
            Self::Protobuf(form) => protobuf::object_bytes(form, object, rv_override, shape),
            Self::Table(form) => form.table(object, rv_override, shape.of_table()),
        }
    }

    /// Writes the body of a GET. JSON ends with a newline.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub fn object_body(&self, object: &Object, shape: Shape) -> Result<Slices, Damaged> {
        let mut out = self.object(object, None, shape)?;
        if self.encoding() != Encoding::Protobuf {
            out.push_static(b"\n");
        }
        Ok(out)
    }

    /// Writes everything before the first item of a list. `empty` means that no item follows.
    pub fn list_head(&self, shape: Shape, meta: &ListMetaOut, empty: bool) -> Slices {
        match self {
            Self::Json(form) => json::list_head(form, shape, meta, empty).into(),
            Self::Protobuf(form) => protobuf::list_head(form, shape, meta).into(),
            Self::Table(form) => form.head(shape.of_table(), meta, empty),
        }
    }

    /// The contribution of this item to [`ListMetaOut::items_len`]; zero for encodings that do not use it.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub fn item_len(&self, object: &Object, shape: Shape) -> Result<u64, Damaged> {
        match self {
            Self::Json(_) | Self::Table(_) => Ok(0),
            Self::Protobuf(form) => protobuf::item_len(form, object, shape),
        }
    }

    /// Writes one item, and the separator after it unless it is the last item.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub fn list_item(&self, object: &Object, shape: Shape, last: bool) -> Result<Slices, Damaged> {
        match self {
            Self::Json(form) => json::list_item(form, object, shape, last),
            Self::Protobuf(form) => protobuf::list_item(form, object, shape),
            Self::Table(form) => {
                let mut out = Slices::new();
                form.push_row(&mut out, object, None, shape.of_table())?;
                out.push_static(if last { b"" } else { b"," });
                Ok(out)
            }
        }
    }

    /// Writes everything after the last item. Call it with the same arguments as [`Self::list_head`].
    pub fn list_tail(&self, shape: Shape, meta: &ListMetaOut, empty: bool) -> Slices {
        match self {
            Self::Json(form) => json::list_tail(form, shape, meta, empty).into(),
            Self::Protobuf(_) => protobuf::list_tail(shape, meta).into(),
            Self::Table(form) => form.tail(empty).into(),
        }
    }

    /// Writes one event of a watch. `rv_override` replaces the resourceVersion of the object. It is needed when an
    /// object stops matching a watcher's selector: the watcher gets the last state that matched, with the
    /// resourceVersion of the change.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub fn event_frame(
        &self,
        kind: EventType,
        object: &Object,
        rv_override: Option<ResourceVersion>,
        shape: Shape,
    ) -> Result<Slices, Damaged> {
        match self {
            Self::Json(form) => json::event_frame(form, kind, object, rv_override, shape),
            Self::Protobuf(form) => protobuf::event_frame(form, kind, object, rv_override, shape),
            Self::Table(form) => form.event_frame(kind, object, rv_override, shape.of_table()),
        }
    }

    /// Writes a BOOKMARK event. `template` is the object of a bookmark that upstream sent for this type, in this
    /// encoding.
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

    /// Writes the ERROR event of a watch. No event may follow it.
    pub fn error_frame(&self, status: &Status) -> Bytes {
        match self {
            Self::Json(_) | Self::Table(_) => json::error_frame(status),
            Self::Protobuf(_) => protobuf::error_frame(status),
        }
    }
}
