//! Selections that the apiserver's parameters cannot express: unions of several selections.

use std::sync::Arc;

use super::{Clause, CompiledFields, Predicate};
use informerd_meta::Scope;

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
        clauses.retain(|clause| !clause.matches_nothing());
        match clauses.as_slice() {
            [] => Self { fields: Arc::new(CompiledFields::nothing()), ..Self::everything() },
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
