//! The size of a request's head.

use http::{HeaderMap, Uri};

/// The approximate memory cost of a header in addition to its bytes.
pub(in crate::http) const HEADER_COST: usize = 128;

/// The bytes of a head's text.
pub(in crate::http) fn bytes(headers: &HeaderMap, uri: &Uri) -> usize {
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() + target
}
