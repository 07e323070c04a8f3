//! Sets of values that names, labels, fields or owners may have. The apiserver's parameters cannot express them.

use super::compiled::Source;
use super::field::is_exact;
use super::tables::{self, Meaning};
use informerd_codec::has_owner;
use informerd_meta::{FieldTable, Object, Resource};

/// A set of values. An object must have one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ValueSet {
    pub(super) of: Of,
    /// Sorted, without duplicates.
    pub(super) values: Box<[Box<str>]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Source(Source),
    /// A field that never has a value.
    Empty,
    Label(Box<str>),
    OwnerUid,
}

// === impl ValueSet ===

impl ValueSet {
    fn new(of: Of, values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<Box<str>> = values.into_iter().map(String::into_boxed_str).collect();
        values.sort_unstable();
        values.dedup();
        Self { of, values: values.into() }
    }

    pub fn names(values: impl IntoIterator<Item = String>) -> Self {
        Self::new(Of::Source(Source::Name), values)
    }

    pub fn namespaces(values: impl IntoIterator<Item = String>) -> Self {
        Self::new(Of::Source(Source::Namespace), values)
    }

    /// An object without the label has no value, not even an empty one.
    pub fn label(key: &str, values: impl IntoIterator<Item = String>) -> Self {
        Self::new(Of::Label(key.into()), values)
    }

    /// Selects objects by the uids of their owner references.
    pub fn owner_uids(values: impl IntoIterator<Item = String>) -> Self {
        Self::new(Of::OwnerUid, values)
    }

    /// # Errors
    /// The apiserver's message for a field that selectors of the type may not use, or a message for a value that may
    /// stand for several ones.
    pub fn field(
        resource: &Resource,
        table: &FieldTable,
        label: &str,
        values: impl IntoIterator<Item = String>,
    ) -> Result<Self, String> {
        let of = match tables::meaning(resource, table, label)? {
            Meaning::Field(source) => Of::Source(source),
            Meaning::AlwaysEmpty => Of::Empty,
        };
        let set = Self::new(of, values);
        set.values.iter().try_for_each(|value| is_exact(value))?;
        Ok(set)
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        match &self.of {
            Of::Source(Source::Name) => self.has(object.key.name()),
            Of::Source(Source::Namespace) => self.has(object.key.namespace()),
            Of::Source(Source::Field(index)) => self.has(object.attributes.field(*index)),
            Of::Empty => self.has(""),
            Of::Label(key) => object.attributes.label(key).is_some_and(|value| self.has(value)),
            Of::OwnerUid => has_owner(object, |uid| self.has(uid)),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.binary_search_by(|known| (**known).cmp(value)).is_ok()
    }
}
