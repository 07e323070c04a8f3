//! Field selectors in terms of one resource's field table.

use std::sync::Arc;

use crate::meta::{Attributes, FieldTable, ObjectKey};

use super::FieldOperator;

/// The terms of a field selector, resolved to where an object has the values. Only to be compared with, and matched
/// against, what belongs to the same resource. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompiledFields {
    /// Sorted, without repetition; of a source with an exact term, that term only. Empty if `never`.
    terms: Box<[Term]>,
    /// The terms contradict each other.
    never: bool,
    /// The index of the table's trigger field, if an exact term is on it.
    trigger: Option<usize>,
}

/// Where an object has the value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    Name,
    Namespace,
    /// The index into the resource's field table.
    Field(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    source: Source,
    operator: FieldOperator,
    value: Box<str>,
    /// As the table names it; follows from the source.
    label: Arc<str>,
}

/// Collects terms and reduces them to what they mean together.
pub(super) struct Builder<'a> {
    table: &'a FieldTable,
    terms: Vec<Term>,
    never: bool,
}

// === impl CompiledFields ===

impl CompiledFields {
    /// The selector that matches nothing.
    pub fn nothing() -> Self {
        Self { never: true, ..Self::default() }
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty() && !self.never
    }

    pub fn matches_nothing(&self) -> bool {
        self.never
    }

    /// Whether the values of this object meet every term. Does not allocate.
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

    /// The value an exact term requires of the field the apiserver keeps a trigger for.
    pub fn trigger(&self) -> Option<&str> {
        self.exact(Source::Field(self.trigger?))
    }

    pub(super) fn exact(&self, source: Source) -> Option<&str> {
        self.terms.iter().find(|term| term.is_exact() && term.source == source).map(|term| &*term.value)
    }

    /// The terms without those on this source, which has this value; nothing if they do not accept it.
    pub(super) fn assume(&self, source: Source, value: &str) -> Self {
        if !self.terms.iter().filter(|term| term.source == source).all(|term| term.accepts(value)) {
            return Self::nothing();
        }
        let terms = self.terms.iter().filter(|term| term.source != source).cloned().collect();
        Self { terms, ..*self }
    }

    /// Whether all terms of `other` hold wherever these do, as far as terms on one field alone can tell.
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
    fn is_exact(&self) -> bool {
        self.operator == FieldOperator::Equals
    }

    fn accepts(&self, value: &str) -> bool {
        (*self.value == *value) == self.is_exact()
    }
}

// === impl Builder ===

impl<'a> Builder<'a> {
    pub(super) fn new(table: &'a FieldTable) -> Self {
        Self { table, terms: Vec::new(), never: false }
    }

    pub(super) fn compare(&mut self, source: Source, operator: FieldOperator, value: &str) {
        let label = match source {
            Source::Name => "metadata.name".into(),
            Source::Namespace => "metadata.namespace".into(),
            Source::Field(index) => self.table.labels.get(index).map_or_else(|| "".into(), |field| field.label.clone()),
        };
        self.terms.push(Term { source, operator, value: value.into(), label });
    }

    /// A term on a field that has the same value in every object.
    pub(super) fn compare_constant(&mut self, constant: &str, operator: FieldOperator, value: &str) {
        self.never |= (constant == value) != (operator == FieldOperator::Equals);
    }

    pub(super) fn build(self) -> CompiledFields {
        let mut terms = self.terms;
        terms.sort_unstable();
        terms.dedup();
        // An exact term decides all others on its field.
        let exact: Vec<Term> = terms.iter().filter(|term| term.is_exact()).cloned().collect();
        let decided = |term: &Term| exact.iter().find(|exact| exact.source == term.source);
        let never =
            self.never || terms.iter().any(|term| decided(term).is_some_and(|exact| !term.accepts(&exact.value)));
        if never {
            return CompiledFields::nothing();
        }
        terms.retain(|term| term.is_exact() || decided(term).is_none());
        let pinned = |index: &usize| exact.iter().any(|exact| exact.source == Source::Field(*index));
        CompiledFields { terms: terms.into(), never, trigger: self.table.trigger.filter(pinned) }
    }
}
