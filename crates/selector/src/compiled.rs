//! Field selectors, compiled for one resource's field table.

use std::sync::Arc;

use informerd_meta::{Attributes, FieldTable, ObjectKey};

use super::field_term::FieldOperator;

/// The terms of a field selector, resolved to the positions of their values in an object. Compare it only with
/// selectors of the same resource, and match it only against objects of that resource. The default selects
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompiledFields {
    /// Sorted, without duplicates. If a source has an exact term, only that term is kept. Empty if `never`.
    terms: Box<[Term]>,
    /// Whether the terms contradict each other.
    never: bool,
    /// The index of the table's trigger field, if there is an exact term for it.
    trigger: Option<usize>,
}

/// The position of a field's value in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    Name,
    Namespace,
    /// The index in the resource's field table.
    Field(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term {
    source: Source,
    operator: FieldOperator,
    value: Box<str>,
    /// The label in the table. The source determines it.
    label: Arc<str>,
}

// === impl CompiledFields ===

impl CompiledFields {
    /// Simplifies the terms. `never`: whether another term can never hold.
    pub(super) fn new(table: &FieldTable, mut terms: Vec<Term>, never: bool) -> Self {
        terms.sort_unstable();
        terms.dedup();
        // An exact term decides all other terms on its field.
        let exact: Vec<Term> = terms.iter().filter(|term| term.is_exact()).cloned().collect();
        let decided = |term: &Term| exact.iter().find(|exact| exact.source == term.source);
        if never || terms.iter().any(|term| decided(term).is_some_and(|exact| !term.accepts(&exact.value))) {
            return Self::nothing();
        }
        terms.retain(|term| term.is_exact() || decided(term).is_none());
        let pinned = |index: &usize| exact.iter().any(|exact| exact.source == Source::Field(*index));
        Self { terms: terms.into(), never, trigger: table.trigger.filter(pinned) }
    }

    /// A selector that matches nothing.
    pub fn nothing() -> Self {
        Self { never: true, ..Self::default() }
    }

    /// Whether it has no requirements.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty() && !self.never
    }

    pub fn matches_nothing(&self) -> bool {
        self.never
    }

    /// Whether the values of this object satisfy every term. Does not allocate.
    pub fn matches(&self, key: &ObjectKey, attributes: &Attributes) -> bool {
        !self.never
            && self.terms.iter().all(|term| {
                let value = match term.source {
                    Source::Name => key.name(),
                    Source::Namespace => key.namespace(),
                    Source::Field(index) => attributes.field(index),
                };
                term.accepts(value)
            })
    }

    /// The value that an exact term requires for the field that the apiserver indexes watchers by.
    pub fn trigger(&self) -> Option<&str> {
        self.exact(Source::Field(self.trigger?))
    }

    /// The selector of that value alone.
    pub(super) fn of_trigger(&self) -> Option<Self> {
        let source = Source::Field(self.trigger?);
        let exact = self.terms.iter().find(|term| term.is_exact() && term.source == source)?;
        Some(Self { terms: std::iter::once(exact.clone()).collect(), ..*self })
    }

    pub(super) fn exact(&self, source: Source) -> Option<&str> {
        self.terms.iter().find(|term| term.is_exact() && term.source == source).map(|term| &*term.value)
    }

    /// Returns the selector without the terms on this source, which has this value. If a term does not accept the
    /// value, the result matches nothing.
    pub(super) fn assume(&self, source: Source, value: &str) -> Self {
        if !self.terms.iter().filter(|term| term.source == source).all(|term| term.accepts(value)) {
            return Self::nothing();
        }
        let terms = self.terms.iter().filter(|term| term.source != source).cloned().collect();
        Self { terms, ..*self }
    }

    /// Whether these terms imply all terms of `other`. Only terms on the same field are compared.
    pub(super) fn implies(&self, other: &Self) -> bool {
        self.never
            || !other.never
                && other.terms.iter().all(|term| {
                    self.exact(term.source)
                        .map_or_else(|| self.terms.binary_search(term).is_ok(), |value| term.accepts(value))
                })
    }
}

// === impl Term ===

impl Term {
    pub(super) fn new(table: &FieldTable, source: Source, operator: FieldOperator, value: &str) -> Self {
        let label = match source {
            Source::Name => "metadata.name".into(),
            Source::Namespace => "metadata.namespace".into(),
            Source::Field(index) => table.labels.get(index).map_or_else(|| "".into(), |field| field.label.clone()),
        };
        Self { source, operator, value: value.into(), label }
    }

    fn is_exact(&self) -> bool {
        self.operator == FieldOperator::Equals
    }

    fn accepts(&self, value: &str) -> bool {
        (*self.value == *value) == self.is_exact()
    }
}
