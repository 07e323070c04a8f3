//! Tables: what kubectl shows. The rows are the apiserver's; only the times in them that are relative to now are printed here.

mod columns;
mod decode;
mod form;
mod human;
mod path;
mod times;

pub use columns::{Columns, Printed, Unprintable};
pub(in crate::codec) use decode::{object_of, only_row, scan_row, split};
pub use form::{Form, Include, TableShape};

use crate::meta::Gvr;

/// The media type that tables are asked for by.
pub const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Whether the apiserver sorts the rows by what they say, as no cache is sorted.
pub fn is_sorted(gvr: &Gvr) -> bool {
    (&*gvr.group, &*gvr.resource) == ("flowcontrol.apiserver.k8s.io", "flowschemas")
}
