//! The fields of a type that a field selector may use, and the positions of their values in an object.

use std::sync::Arc;

/// The position of a field's value in an object, and the value that a missing one compares as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldValue {
    /// Member names from the object's root. Numbers name array elements (`status.podIPs.0.ip`).
    pub path: Arc<[Arc<str>]>,
    /// A second position to use when the first one is missing or empty (an Event's `source`).
    pub fallback: Option<Arc<[Arc<str>]>>,
    /// The same two positions as protobuf field numbers. In a list, the first element is used. Empty if there is no
    /// protobuf encoding or no second position.
    pub numbers: Arc<[u32]>,
    pub fallback_numbers: Arc<[u32]>,
    /// The value that a missing value compares as: "" for most fields, "false" or "0" for omitted zero values.
    pub missing: &'static str,
}

/// One supported field label of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLabel {
    /// The label in a request, such as `spec.nodeName`.
    pub label: Arc<str>,
    pub value: FieldValue,
}

/// The field labels of one resource, except `metadata.name` and `metadata.namespace`, which are in the key of every
/// object. [`super::Attributes`] stores the values of an object in the order of this table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldTable {
    pub labels: Arc<[FieldLabel]>,
    /// The index in `labels` of the trigger field, by which the apiserver indexes watchers (`spec.nodeName` of pods).
    /// Watchers with an exact term on it are found by its value instead of being checked one by one.
    pub trigger: Option<usize>,
}

impl FieldTable {
    pub fn index_of(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|field| &*field.label == label)
    }
}
