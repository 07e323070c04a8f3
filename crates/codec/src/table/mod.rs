//! Tables, the format that kubectl displays. The apiserver prints the rows. informerd prints only the relative times
//! again.

mod columns;
mod decode;
mod form;
mod human;
mod path;
mod times;

pub use columns::{Columns, Printed, Unprintable};
pub(crate) use decode::{object_of, only_row, scan_row, split};
pub use form::Form;

pub use super::shape::{Include, TableShape};
use informerd_meta::Gvr;

/// The media type for requesting tables.
pub const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Whether the apiserver sorts the rows by their contents. No cache has that order.
pub fn is_sorted(gvr: &Gvr) -> bool {
    (&*gvr.group, &*gvr.resource) == ("flowcontrol.apiserver.k8s.io", "flowschemas")
}
