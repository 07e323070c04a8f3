//! One stored object: its bytes, and the attributes that selectors need.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::registry::{Field, Kind};
use crate::types::{Attributes, ObjectKey};

/// An object at one revision.
#[derive(Clone, Debug)]
pub struct Stored {
    pub key: ObjectKey,
    /// `metadata.resourceVersion`.
    pub rv: u64,
    /// The bytes of a GET, without the newline.
    pub json: Bytes,
    pub(super) attributes: Attributes,
    metadata: Range<usize>,
    /// The quoted value of `metadata.resourceVersion`.
    rv_at: Range<usize>,
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(borrow)]
    resource_version: &'a RawValue,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

// === impl Stored ===

impl Stored {
    /// Returns `None` if the bytes are not an object with a name and a resourceVersion.
    pub(super) fn parse(kind: &Kind, json: Bytes) -> Option<Self> {
        let text = std::str::from_utf8(&json).ok()?;
        let members: Members<'_> = serde_json::from_str(text).ok()?;
        let raw = members.get("metadata")?;
        let metadata: Metadata<'_> = serde_json::from_str(raw.get()).ok()?;
        let field = |field: &Field| {
            let value = value_at(&members, &field.path).filter(|value| !value.is_empty());
            value.unwrap_or_else(|| field.missing.to_owned())
        };
        let fields = kind.fields.iter().map(field).collect();
        Some(Self {
            key: ObjectKey::new(&metadata.namespace, &metadata.name),
            rv: metadata.resource_version.get().trim_matches('"').parse().ok()?,
            attributes: Attributes { uid: metadata.uid, labels: metadata.labels, fields },
            metadata: position(text, raw.get()),
            rv_at: position(text, metadata.resource_version.get()),
            json,
        })
    }

    /// An object of bytes that need not be one.
    pub(super) fn raw(key: ObjectKey, rv: u64, json: Bytes) -> Self {
        Self { key, rv, attributes: Attributes::default(), metadata: 0..json.len(), rv_at: 0..0, json }
    }

    /// The same object with another resourceVersion, as in a deletion event.
    pub(super) fn with_rv(&self, rv: u64) -> Self {
        if self.rv_at.is_empty() {
            return Self { rv, ..self.clone() };
        }
        let text = format!("\"{rv}\"");
        let mut json = Vec::with_capacity(self.json.len() + 4);
        json.extend_from_slice(&self.json[..self.rv_at.start]);
        json.extend_from_slice(text.as_bytes());
        json.extend_from_slice(&self.json[self.rv_at.end..]);
        let metadata_end = self.metadata.end + text.len() - self.rv_at.len();
        Self {
            key: self.key.clone(),
            rv,
            attributes: self.attributes.clone(),
            metadata: self.metadata.start..metadata_end,
            rv_at: self.rv_at.start..self.rv_at.start + text.len(),
            json: json.into(),
        }
    }

    /// The `metadata` value, including braces.
    pub(super) fn metadata(&self) -> &[u8] {
        &self.json[self.metadata.clone()]
    }

    /// The object as a JSON tree.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
}

/// The position of `part`, which must be a slice of `whole`.
fn position(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}

/// A scalar at a path, as text.
fn value_at(members: &Members<'_>, path: &str) -> Option<String> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    scalar(members.get(first)?, rest)
}

fn scalar(value: &RawValue, path: &str) -> Option<String> {
    if path.is_empty() {
        return match serde_json::from_str::<Value>(value.get()).ok()? {
            Value::String(text) => Some(text),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
            other => Some(other.to_string()),
        };
    }
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    if let Ok(index) = first.parse::<usize>() {
        let items: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
        return scalar(items.get(index)?, rest);
    }
    let members: Members<'_> = serde_json::from_str(value.get()).ok()?;
    scalar(members.get(first)?, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_version_is_replaced() {
        let pod = Kind::built_in().into_iter().find(|kind| &*kind.id == "pods").unwrap();
        let json =
            br#"{"kind":"Pod","metadata":{"name":"a","namespace":"n","resourceVersion":"99","uid":"u"},"spec":{}}"#;
        let stored = Stored::parse(&pod, Bytes::from_static(json)).unwrap();
        assert_eq!((stored.key.as_str(), stored.rv), ("n/a", 99));
        let later = stored.with_rv(12345);
        let again = Stored::parse(&pod, later.json.clone()).unwrap();
        assert_eq!((again.rv, again.metadata()), (12345, later.metadata()));
    }
}
