//! Which fields of a type a field selector may name, and where their values stand in an object.

use std::sync::Arc;

/// Where a field's value comes from in the object, and what a missing one compares as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldValue {
    /// Member names from the object's root. Numbers name array elements (`status.podIPs.0.ip`).
    pub path: Arc<[Arc<str>]>,
    /// A second place to look when the first is missing or empty (an Event's `source`).
    pub fallback: Option<Arc<[Arc<str>]>>,
    /// The same two places as numbers of fields, of a list its first element; empty where there is no protobuf, or no
    /// second place.
    pub numbers: Arc<[u32]>,
    pub fallback_numbers: Arc<[u32]>,
    /// What a missing value compares as: "" for most, "false" or "0" for omitted zero values.
    pub missing: &'static str,
}

/// One supported field label of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLabel {
    /// The label as a request names it, such as `spec.nodeName`.
    pub label: Arc<str>,
    pub value: FieldValue,
}

/// The field labels of one resource besides `metadata.name` and `metadata.namespace`, which every object's key
/// answers. An object's [`super::Attributes`] holds the values in the order of this table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldTable {
    pub labels: Arc<[FieldLabel]>,
    /// The index into `labels` of the field the apiserver keeps a trigger for (`spec.nodeName` of pods): watchers
    /// that pin it are found by value instead of being tried one by one.
    pub trigger: Option<usize>,
}

impl FieldTable {
    pub fn index_of(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|field| &*field.label == label)
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}
