//! Tables: what kubectl shows. The rows are the apiserver's; only the times in them that are relative to now are printed here.

mod columns;
mod decode;
mod form;
mod human;
mod path;
mod times;

pub use columns::{Columns, Printed, Unprintable};
pub(in crate::codec) use decode::{only_row, scan_row, split};
pub use form::{Form, Include, TableShape};

use crate::meta::Gvr;

/// The media type that tables are asked for by.
pub const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// What the rows of a resource's cache hold. The apiserver makes the metadata of a row of its internal object, which of
/// some types lacks annotations that the whole object has: of these the metadata is kept as it is sent.
pub fn held(gvr: &Gvr) -> Include {
    match (&*gvr.group, &*gvr.resource) {
        ("apps", "daemonsets" | "deployments") | ("autoscaling", "horizontalpodautoscalers") => Include::Metadata,
        _ => Include::Object,
    }
}

/// Whether the rows of a cache can be served so. The rows of flow schemas are sorted by what they say, which no cache is.
pub fn is_held(gvr: &Gvr, asked: Include) -> bool {
    let is_sorted = (&*gvr.group, &*gvr.resource) == ("flowcontrol.apiserver.k8s.io", "flowschemas");
    !is_sorted && (asked != Include::Object || held(gvr) == Include::Object)
}
