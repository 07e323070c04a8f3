//! Tables, put together of the rows that the apiserver printed.

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::json::{self, Style};
use crate::codec::{self, ListMetaOut, Shape, Slices};
use crate::meta::{EventType, Moment, Object, ResourceVersion};

use super::columns::Columns;
use super::decode::split;
use super::human::push_human;

/// How a table is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableShape {
    /// `meta.k8s.io/v1beta1` instead of v1; of the rows' metadata too.
    pub v1beta1: bool,
    pub include: Include,
    /// Without the definitions of the columns: every event of a watch after the first.
    pub no_headers: bool,
    /// What the rows say is how long ago things are at this moment.
    pub now: Moment,
}

/// What of the object is in its row: the parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

/// The form of one resource's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The form of the objects within the rows.
    pub json: json::Form,
    pub columns: Arc<Columns>,
    /// The same, for those who read the objects alone.
    objects: Arc<codec::Form>,
}

// === impl Form ===

impl Form {
    pub fn new(json: json::Form, columns: Arc<Columns>) -> Self {
        let objects = Arc::new(codec::Form::Json(json.clone().in_rows()));
        Self { json, columns, objects }
    }

    /// The form of the objects without their rows.
    pub fn objects(&self) -> &Arc<codec::Form> {
        &self.objects
    }

    pub fn style(&self) -> Style {
        self.json.style
    }

    /// A table of one object, with the final newline: the body of a GET.
    pub fn object_body(&self, object: &Object, shape: TableShape) -> Slices {
        let mut out = self.table(object, None, shape);
        out.push_static(b"\n");
        out
    }

    pub fn table(&self, object: &Object, rv_override: Option<ResourceVersion>, shape: TableShape) -> Slices {
        let meta = ListMetaOut { rv: rv_override.unwrap_or(object.rv), ..ListMetaOut::default() };
        let mut out = self.head(shape, &meta, false);
        self.push_row(&mut out, object, rv_override, shape);
        out.push_static(b"]}");
        out
    }

    /// Everything before the first row.
    pub fn head(&self, shape: TableShape, meta: &ListMetaOut, empty: bool) -> Slices {
        let mut head = String::with_capacity(128);
        head.push_str("{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/");
        head.push_str(if shape.v1beta1 { "v1beta1" } else { "v1" });
        head.push_str("\",\"metadata\":");
        json::push_list_meta(&mut head, meta);
        head.push_str(",\"columnDefinitions\":");
        let mut out = Slices::from(Bytes::from(head));
        let is_named = !shape.no_headers || self.columns.in_every_event();
        out.push(if is_named { self.columns.definitions().clone() } else { Bytes::from_static(b"null") });
        out.push_static(if self.is_null(empty) { b",\"rows\":null" } else { b",\"rows\":[" });
        out
    }

    /// Everything after the last row, with the final newline.
    pub fn tail(&self, empty: bool) -> Bytes {
        Bytes::from_static(if self.is_null(empty) { b"}\n" } else { b"]}\n" })
    }

    pub fn push_row(&self, out: &mut Slices, object: &Object, rv_override: Option<ResourceVersion>, shape: TableShape) {
        let Some(row) = object.row() else { return };
        let mut from = 0;
        if !row.holes.is_empty() {
            let text = std::str::from_utf8(&row.head).unwrap_or_default();
            let mut head = String::with_capacity(text.len() + 16);
            for hole in &row.holes {
                head.push_str(text.get(from..hole.at.start as usize).unwrap_or_default());
                push_human(&mut head, shape.now.since(hole.moment));
                from = hole.at.end as usize;
            }
            out.push(head.into());
        }
        out.push(row.head.slice(from.min(row.head.len())..));
        match shape.object_shape() {
            Some(shape) => out.append(json::object_bytes(&self.json, object, rv_override, shape)),
            None => out.push_static(b"null"),
        }
        out.push(row.tail.clone());
    }

    /// One event of a watch, with the newline.
    pub fn event_frame(
        &self,
        kind: EventType,
        object: &Object,
        rv_override: Option<ResourceVersion>,
        shape: TableShape,
    ) -> Slices {
        let mut out = Slices::new();
        out.push_static(json::inline_prefix(kind));
        out.append(self.table(object, rv_override, shape));
        out.push_static(b"}\n");
        out
    }

    /// A BOOKMARK frame, with the newline: a table whose only row is that of an empty object. `template` is the row of a
    /// bookmark that upstream sent; its cells tell no time. Without one there are no cells.
    pub fn bookmark_frame(
        &self,
        template: Option<&Bytes>,
        rv: ResourceVersion,
        initial_events_end: bool,
        shape: TableShape,
    ) -> Bytes {
        let parts = template.and_then(|template| split(template).ok());
        let (head, object, tail) = match &parts {
            Some((head, object, tail)) => (&**head, Some(object), &**tail),
            None => (&b"{\"cells\":[],\"object\":"[..], None, &b"}"[..]),
        };
        let meta = ListMetaOut { rv, ..ListMetaOut::default() };
        let mut out = Slices::new();
        out.push_static(b"{\"type\":\"BOOKMARK\",\"object\":");
        out.append(self.head(shape, &meta, false));
        out.push(Bytes::copy_from_slice(head));
        // The marker of the initial events is said whatever was asked for.
        let partial = TableShape { include: Include::Metadata, ..shape }.object_shape();
        match shape.object_shape().or(partial.filter(|_| initial_events_end)) {
            Some(shape) => out.push(json::bookmark_object(&self.json, object, rv, initial_events_end, shape)),
            None => out.push_static(b"null"),
        }
        out.push(Bytes::copy_from_slice(tail));
        out.push_static(b"]}}\n");
        out.into_bytes()
    }

    fn is_null(&self, empty: bool) -> bool {
        empty && self.columns.null_when_empty()
    }
}

// === impl TableShape ===

impl TableShape {
    /// The shape of the objects in the rows.
    fn object_shape(self) -> Option<Shape> {
        match (self.include, self.v1beta1) {
            (Include::None, _) => None,
            (Include::Object, _) => Some(Shape::Full),
            (Include::Metadata, false) => Some(Shape::PartialObjectMetadata),
            (Include::Metadata, true) => Some(Shape::PartialObjectMetadataV1beta1),
        }
    }
}

// === impl Include ===

impl Include {
    /// The parameter's value; `None` for one that the apiserver refuses.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "None" => Self::None,
            "" | "Metadata" => Self::Metadata,
            "Object" => Self::Object,
            _ => return None,
        })
    }
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
