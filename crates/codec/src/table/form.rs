//! Writes tables from the rows that the apiserver printed.

use std::sync::Arc;

use bytes::Bytes;

use crate::json;
use crate::shape::{Include, TableShape};
use crate::{ListMetaOut, Slices};
use informerd_meta::{Damaged, EventType, Object, ResourceVersion};

use super::columns::Columns;
use super::decode::split;
use super::human::push_human;

/// The form of one resource's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// The form of the objects in the rows.
    pub json: json::Form,
    pub columns: Arc<Columns>,
}

// === impl Form ===

impl Form {
    /// Writes a table with one object.
    ///
    /// # Errors
    /// The bytes of the object are damaged, as for all that is written here.
    pub fn table(
        &self,
        object: &Object,
        rv_override: Option<ResourceVersion>,
        shape: TableShape,
    ) -> Result<Slices, Damaged> {
        let meta = ListMetaOut { rv: rv_override.unwrap_or(object.rv), ..ListMetaOut::default() };
        let mut out = self.head(shape, &meta, false);
        self.push_row(&mut out, object, rv_override, shape)?;
        out.push_static(b"]}");
        Ok(out)
    }

    /// Writes everything before the first row.
    pub fn head(&self, shape: TableShape, meta: &ListMetaOut, empty: bool) -> Slices {
        let mut head = String::with_capacity(128);
        head.push_str("{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/");
        head.push_str(if shape.v1beta1 { "v1beta1" } else { "v1" });
        head.push_str("\",\"metadata\":");
        json::push_list_meta(&mut head, meta);
        head.push_str(",\"columnDefinitions\":");
        let mut out = Slices::from(Bytes::from(head));
        let is_named = !shape.no_headers || self.columns.in_every_event;
        out.push(if is_named { self.columns.definitions().clone() } else { Bytes::from_static(b"null") });
        out.push_static(if self.is_null(empty) { b",\"rows\":null" } else { b",\"rows\":[" });
        out
    }

    /// Writes everything after the last row, including the final newline.
    pub fn tail(&self, empty: bool) -> Bytes {
        Bytes::from_static(if self.is_null(empty) { b"}\n" } else { b"]}\n" })
    }

    /// # Errors
    /// The bytes of the object are damaged.
    pub fn push_row(
        &self,
        out: &mut Slices,
        object: &Object,
        rv_override: Option<ResourceVersion>,
        shape: TableShape,
    ) -> Result<(), Damaged> {
        let Some(row) = object.row() else { return Ok(()) };
        let mut from = 0;
        if !row.holes.is_empty() {
            let mut head = Vec::with_capacity(row.head.len() + 16);
            for hole in &row.holes {
                head.extend_from_slice(row.head.get(from..hole.at.start as usize).unwrap_or_default());
                let mut age = String::new();
                push_human(&mut age, shape.now.since(hole.moment));
                head.extend_from_slice(age.as_bytes());
                from = hole.at.end as usize;
            }
            out.push(head.into());
        }
        out.push(row.head.slice(from.min(row.head.len())..));
        match shape.object_shape() {
            Some(shape) => out.append(json::object_bytes(&self.json, object, rv_override, shape)?),
            None => out.push_static(b"null"),
        }
        out.push(row.tail.clone());
        Ok(())
    }

    /// Writes one event of a watch, including the newline.
    ///
    /// # Errors
    /// The bytes of the object are damaged.
    pub fn event_frame(
        &self,
        kind: EventType,
        object: &Object,
        rv_override: Option<ResourceVersion>,
        shape: TableShape,
    ) -> Result<Slices, Damaged> {
        let mut out = Slices::new();
        out.push_static(json::inline_prefix(kind));
        out.append(self.table(object, rv_override, shape)?);
        out.push_static(b"}\n");
        Ok(out)
    }

    /// Writes a BOOKMARK frame, including the newline. It is a table with one row, which contains an empty object.
    /// `template` is the row of a bookmark that upstream sent; its cells contain no time. Without a template the row
    /// has no cells.
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
        // The marker for the end of the initial events is written even when the client requested no objects.
        let partial = TableShape { include: Include::Metadata, ..shape }.object_shape();
        match shape.object_shape().or(partial.filter(|_| initial_events_end)) {
            Some(shape) => out.push(json::bookmark_object(&self.json, object, rv, initial_events_end, shape).into()),
            None => out.push_static(b"null"),
        }
        out.push(Bytes::copy_from_slice(tail));
        out.push_static(b"]}}\n");
        out.into_bytes()
    }

    fn is_null(&self, empty: bool) -> bool {
        empty && self.columns.null_when_empty
    }
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
