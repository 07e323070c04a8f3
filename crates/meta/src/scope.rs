//! The part of a resource's key space that a request or a watcher covers.

use std::sync::Arc;

use super::ObjectKey;

/// A namespace and a name, each optional. `namespace` is `None` for all namespaces and for cluster-scoped types.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope {
    pub namespace: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
}

impl Scope {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), name: None }
    }

    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.namespace.as_deref().is_none_or(|ns| ns == key.namespace())
            && self.name.as_deref().is_none_or(|name| name == key.name())
    }
}
