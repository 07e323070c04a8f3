//! Keys in the order of the apiserver's storage: a flat string `namespace/name`, or `name` for cluster scope.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The flat key of an object. Keys are ordered by their bytes, so `a-b/x` sorts before `a/x`, as in the apiserver's
/// lists. Cloning only increments a reference count.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    flat: Arc<str>,
}

impl ObjectKey {
    /// `namespace` is empty for cluster-scoped objects.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() {
            return Self { flat: name.into() };
        }
        let mut flat = String::with_capacity(namespace.len() + 1 + name.len());
        flat.push_str(namespace);
        flat.push('/');
        flat.push_str(name);
        Self { flat: flat.into() }
    }

    /// The key as [`Self::as_str`] gives it.
    pub fn from_flat(flat: &str) -> Self {
        Self { flat: flat.into() }
    }

    pub fn as_str(&self) -> &str {
        &self.flat
    }

    /// Empty for a cluster-scoped object. Names never contain a slash, so the last slash separates namespace and
    /// name.
    pub fn namespace(&self) -> &str {
        self.flat.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.flat.rsplit_once('/').map_or(&self.flat, |(_, name)| name)
    }
}

// === impl ObjectKey ===

// A key borrows as its flat string, so ordered maps can be searched with a `&str` prefix.
impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.flat
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.flat.as_bytes().cmp(other.flat.as_bytes())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flat.fmt(f)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flat.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_as_one_flat_string() {
        assert!(ObjectKey::new("a-b", "x") < ObjectKey::new("a", "x"));
        assert!(ObjectKey::new("a", "b-c") < ObjectKey::new("a", "b.c"));
    }
}
