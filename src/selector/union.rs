//! Selections that the apiserver's parameters cannot express: unions of several selections, and sets of values.

use std::sync::Arc;

use super::compiled::Source;
use super::field::is_exact;
use super::tables::{self, Meaning};
use super::{CompiledFields, LabelSelector, Predicate};
use crate::codec::has_owner;
use crate::meta::{FieldTable, Object, Resource, Scope};

/// One alternative of a union: a plain predicate, and sets of values. The object must have one value of each set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clause {
    plain: Predicate,
    sets: Box<[ValueSet]>,
}

/// A set of values. An object must have one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ValueSet {
    of: Of,
    /// Sorted, without duplicates.
    values: Box<[Box<str>]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Of {
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

    fn matches(&self, object: &Object) -> bool {
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

// === impl Clause ===

impl Clause {
    pub fn new(
        scope: Scope,
        labels: impl Into<Arc<LabelSelector>>,
        fields: impl Into<Arc<CompiledFields>>,
        sets: Vec<ValueSet>,
    ) -> Self {
        let mut scope = scope;
        let mut more = Vec::with_capacity(sets.len());
        for set in sets {
            // A single value is equivalent to a scope, and a scope allows the use of narrower informers.
            let part = match set.of {
                Of::Source(Source::Namespace) => Some(&mut scope.namespace),
                Of::Source(Source::Name) => Some(&mut scope.name),
                _ => None,
            };
            match (part, &*set.values) {
                (Some(part), [only]) if part.is_none() => *part = Some((**only).into()),
                _ => more.push(set),
            }
        }
        Self { plain: Predicate::new(scope, labels, fields), sets: more.into() }
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        self.plain.matches(object) && self.sets.iter().all(|set| set.matches(object))
    }

    fn matches_nothing(&self) -> bool {
        self.plain.matches_nothing() || self.sets.iter().any(|set| set.values.is_empty())
    }

    /// Whether every object selected here is also selected by a predicate without alternatives.
    pub(super) fn implies(&self, other: &Predicate) -> bool {
        self.matches_nothing() || self.plain.implies(other)
    }
}

// === impl Predicate ===

impl Predicate {
    /// Selects what any of the clauses selects, or everything if there are none. If a single clause is equivalent to
    /// a plain predicate, the result is that predicate, so its watchers can share a group with others.
    pub fn union(mut clauses: Vec<Clause>) -> Self {
        let all = clauses.iter().any(|clause| clause.plain.is_everything() && clause.sets.is_empty());
        if clauses.is_empty() || all {
            return Self::everything();
        }
        clauses.sort_by_cached_key(|clause| format!("{clause:?}"));
        clauses.dedup();
        if clauses.len() > 1 {
            clauses.retain(|clause| !clause.matches_nothing());
        }
        match clauses.as_slice() {
            [] => Self { fields: Arc::new(CompiledFields::nothing()), ..Self::everything() },
            [only] if only.matches_nothing() => {
                Self { fields: Arc::new(CompiledFields::nothing()), ..Self::everything() }
            }
            [only] if only.sets.is_empty() => only.plain.clone(),
            [only] => Self { any_of: Some(clauses.clone().into()), ..only.plain.clone() },
            [first, rest @ ..] => {
                // A shared namespace limits the part of the key space to search.
                let namespace = first.plain.scope.namespace.clone();
                let shared = rest.iter().all(|clause| clause.plain.scope.namespace == namespace);
                let scope = Scope { namespace: namespace.filter(|_| shared), name: None };
                Self { any_of: Some(clauses.clone().into()), ..Self::scoped(scope) }
            }
        }
    }
}

#[cfg(test)]
#[path = "union_tests.rs"]
mod tests;
