//! The objects of one resource that a request or watcher selects.

use std::sync::Arc;

use informerd_meta::{Object, Scope};

use super::compiled::Source;
use super::value_set::{Of, ValueSet};
use super::{CompiledFields, LabelSelector, ShardSelector};

/// A part of the key space, and additional requirements for labels, fields and hashes. Equal predicates select the
/// same objects of the same resource, so their watchers may share one group. The reverse does not always hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Predicate {
    pub scope: Scope,
    pub labels: Arc<LabelSelector>,
    pub fields: Arc<CompiledFields>,
    /// At least one of these must match, too.
    pub(super) any_of: Option<Arc<[Clause]>>,
    pub(super) shard: Option<Arc<ShardSelector>>,
}

/// One alternative of a union: a plain predicate, and sets of values. The object must have one value of each set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clause {
    pub(super) plain: Predicate,
    pub(super) sets: Box<[ValueSet]>,
}

// === impl Predicate ===

impl Predicate {
    /// `scope` comes from the path of the request. Exact terms on `metadata.name` and `metadata.namespace` are moved
    /// into it. If they contradict it or each other, or cannot be names, the predicate matches nothing; that is not
    /// an error.
    ///
    /// The result does not show whether the *request* had selectors. The apiserver counts remaining items only for
    /// requests without selectors, and `metadata.namespace=x` is a selector.
    pub fn new(scope: Scope, labels: impl Into<Arc<LabelSelector>>, fields: impl Into<Arc<CompiledFields>>) -> Self {
        let (labels, mut fields) = (labels.into(), fields.into());
        let mut scope = scope;
        let parts = [(Source::Name, &mut scope.name), (Source::Namespace, &mut scope.namespace)];
        for (source, part) in parts {
            if part.is_none() {
                *part = fields.exact(source).map(Into::into);
            }
            let Some(value) = part.as_deref() else { continue };
            let narrowed = if is_nameable(value) { fields.assume(source, value) } else { CompiledFields::nothing() };
            if narrowed != *fields {
                fields = Arc::new(narrowed);
            }
        }
        Self { scope, labels, fields, any_of: None, shard: None }
    }

    /// A predicate that selects a whole resource.
    pub fn everything() -> Self {
        Self::scoped(Scope::all())
    }

    /// A predicate with a scope and no selectors.
    pub fn scoped(scope: Scope) -> Self {
        Self::new(scope, LabelSelector::default(), CompiledFields::default())
    }

    /// Restricts the predicate to a shard.
    #[must_use]
    pub fn in_shard(self, shard: Arc<ShardSelector>) -> Self {
        Self { shard: Some(shard), ..self }
    }

    /// Removes the restriction to a shard.
    #[must_use]
    pub fn in_all_shards(self) -> Self {
        Self { shard: None, ..self }
    }

    /// Whether the object is selected. Does not allocate.
    pub fn matches(&self, object: &Object) -> bool {
        !self.fields.matches_nothing()
            && self.scope.contains(&object.key)
            && self.labels.matches(&object.attributes)
            && self.fields.matches(&object.key, &object.attributes)
            && self.any_of.as_ref().is_none_or(|clauses| clauses.iter().any(|clause| clause.matches(object)))
            && self.shard.as_ref().is_none_or(|shard| shard.matches(object))
    }

    /// Whether every object of the resource is selected.
    pub fn is_everything(&self) -> bool {
        self.scope == Scope::default() && self.is_scope_only()
    }

    /// Whether there are no requirements besides the scope.
    pub fn is_scope_only(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.any_of.is_none() && self.shard.is_none()
    }

    /// Whether no object can match, because the terms contradict each other or contain an impossible name. Check this
    /// before reading the scope. Lists and watches of such a predicate are empty and succeed.
    pub fn matches_nothing(&self) -> bool {
        self.fields.matches_nothing()
    }

    /// The required value of the field that the apiserver indexes watchers by: `spec.nodeName` of pods.
    pub fn trigger(&self) -> Option<&str> {
        self.fields.trigger()
    }

    /// What the apiserver finds by its index of that value, before it looks at other terms. `None` if it uses no index.
    pub fn indexed(&self) -> Option<Self> {
        let fields = Arc::new(self.fields.of_trigger()?);
        Some(Self { fields, ..Self::scoped(self.scope.clone()) })
    }

    /// Whether every object selected here is also selected by `other`. The result is conservative: it is false if
    /// single terms are not enough to decide.
    pub fn implies(&self, other: &Self) -> bool {
        if self.matches_nothing() {
            return true;
        }
        if other.any_of.is_some() && self.any_of != other.any_of {
            return false;
        }
        if other.shard.is_some() && self.shard != other.shard {
            return false;
        }
        let common = within(self.scope.name.as_deref(), other.scope.name.as_deref())
            && within(self.scope.namespace.as_deref(), other.scope.namespace.as_deref())
            && self.labels.implies(&other.labels)
            && self.fields.implies(&self.known_by_scope(&other.fields));
        common || self.any_of.as_deref().is_some_and(|clauses| clauses.iter().all(|clause| clause.implies(other)))
    }

    /// The terms of `fields` that this scope does not already decide.
    fn known_by_scope(&self, fields: &Arc<CompiledFields>) -> Arc<CompiledFields> {
        let mut fields = fields.clone();
        for (source, part) in [(Source::Name, &self.scope.name), (Source::Namespace, &self.scope.namespace)] {
            if let Some(value) = part {
                fields = Arc::new(fields.assume(source, value));
            }
        }
        fields
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

    fn matches(&self, object: &Object) -> bool {
        self.plain.matches(object) && self.sets.iter().all(|set| set.matches(object))
    }

    pub(super) fn matches_nothing(&self) -> bool {
        self.plain.matches_nothing() || self.sets.iter().any(|set| set.values.is_empty())
    }

    /// Whether every object selected here is also selected by a predicate without alternatives.
    fn implies(&self, other: &Predicate) -> bool {
        self.matches_nothing() || self.plain.implies(other)
    }
}

fn within(inner: Option<&str>, outer: Option<&str>) -> bool {
    outer.is_none() || inner == outer
}

/// Whether an object or a namespace could have this name.
fn is_nameable(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}
