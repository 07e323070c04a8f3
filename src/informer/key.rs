//! What identifies an informer: its resource, its scope, and its encoding.

use std::fmt;
use std::sync::Arc;

use crate::meta::{Encoding, Gvr, Resource, Scope};
use crate::selector::{self, FieldSelector, LabelSelector, Predicate};

/// The part of a resource that an informer holds: everything, one namespace, or what one selector matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InformerScope {
    pub namespace: Option<Arc<str>>,
    pub field_selector: Arc<str>,
    pub label_selector: Arc<str>,
}

/// Identifies an informer: there is only one per key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InformerKey {
    pub gvr: Gvr,
    pub scope: InformerScope,
    pub encoding: Encoding,
}

// === impl InformerScope ===

impl InformerScope {
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

// === impl InformerKey ===

impl fmt::Display for InformerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.gvr)?;
        if let Some(namespace) = &self.scope.namespace {
            write!(f, " in {namespace}")?;
        }
        for (what, selector) in [("fields", &self.scope.field_selector), ("labels", &self.scope.label_selector)] {
            if !selector.is_empty() {
                write!(f, " with {what} {selector}")?;
            }
        }
        // JSON is the default and is not shown.
        match self.encoding {
            Encoding::Json => Ok(()),
            other => write!(f, " ({})", other.as_str()),
        }
    }
}

/// The predicate of an informer's own upstream selectors; `None` if they do not fit the resource.
pub(super) fn scope_predicate(resource: &Resource, scope: &InformerScope) -> Option<Predicate> {
    let labels = LabelSelector::parse(&scope.label_selector).ok()?;
    let table = selector::field_table(resource);
    let fields = FieldSelector::parse(&scope.field_selector).ok()?.compile(resource, &table).ok()?;
    let space = Scope { namespace: scope.namespace.clone(), name: None };
    Some(Predicate::new(space, Arc::new(labels), Arc::new(fields)))
}
