//! Members of JSON documents that servers of others write. Go reads `null` as the empty value, so such servers may send it
//! for every member, and what cannot be read costs itself alone.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// `null` is the empty value. With `#[serde(default)]`, so is a member that is missing.
///
/// # Errors
/// It is of another type.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The elements of a list that can be read.
///
/// # Errors
/// It is neither a list nor `null`.
pub(crate) fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    let elements: Vec<Box<RawValue>> = nullable(from)?;
    let read = |element: Box<RawValue>| {
        let read = serde_json::from_str(element.get());
        read.inspect_err(|error| tracing::debug!(%error, "a part of a document cannot be read")).ok()
    };
    Ok(elements.into_iter().filter_map(read).collect())
}
