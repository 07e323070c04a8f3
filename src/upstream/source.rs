//! What an informer lists and watches.

use std::sync::{Arc, OnceLock};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::apiserver::client::{CallOptions, RequestVerb};
use crate::apiserver::meter::Meter;
use crate::codec::Format;
use crate::codec::table::{self, Columns};
use crate::meta::{Encoding, FieldTable, ObjectKey, Resource, ResourceVersion};

/// A collection of the apiserver, and the part of it that the informer reads.
#[derive(Clone, Debug)]
pub struct ListerWatcher {
    pub resource: Arc<Resource>,
    /// `None` for all namespaces, or for a cluster-scoped type.
    pub namespace: Option<Arc<str>>,
    /// As in the query of a request; empty for none.
    pub field_selector: String,
    pub label_selector: String,
    /// The fields whose values are extracted from the objects.
    pub table: FieldTable,
    /// The encoding in which objects are requested and kept.
    pub encoding: Encoding,
    /// The columns of a table, once they are known. Shared by all readers of the same table.
    pub columns: Arc<OnceLock<Arc<Columns>>>,
    /// Counts all that is asked for it.
    pub meter: Arc<Meter>,
}

/// All characters that may be unescaped in a query value.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A valid path segment that is not a valid object name.
const NOBODY: &str = "-";

// === impl ListerWatcher ===

#[cfg(test)]
impl ListerWatcher {
    /// All objects of a resource, in JSON.
    pub(crate) fn of(resource: Arc<Resource>) -> Self {
        Self {
            resource,
            namespace: None,
            field_selector: String::new(),
            label_selector: String::new(),
            table: FieldTable::default(),
            encoding: Encoding::Json,
            columns: Arc::default(),
            meter: Arc::default(),
        }
    }
}

impl ListerWatcher {
    /// The path of a request with these parameters and the selectors of this source.
    pub fn query(&self, parameters: &str) -> String {
        let mut path = format!("{}?{parameters}", self.resource.gvr.path(self.namespace.as_deref()));
        for (name, selector) in [("fieldSelector", &self.field_selector), ("labelSelector", &self.label_selector)] {
            if !selector.is_empty() {
                if !path.ends_with('?') {
                    path.push('&');
                }
                path.push_str(name);
                path.push('=');
                path.extend(utf8_percent_encode(selector, KEPT));
            }
        }
        path
    }

    /// The same for requests that need the objects themselves. For tables, the rows then contain the objects.
    fn rows(&self, parameters: &str) -> String {
        if self.encoding != Encoding::Table {
            return self.query(parameters);
        }
        let and = if parameters.is_empty() { "" } else { "&" };
        self.query(&format!("{parameters}{and}includeObject=Object"))
    }

    /// The path of one object.
    pub(super) fn object_path(&self, key: &ObjectKey) -> String {
        let namespace = Some(key.namespace()).filter(|namespace| !namespace.is_empty());
        format!("{}/{}", self.resource.gvr.path(namespace), utf8_percent_encode(key.name(), KEPT))
    }

    /// The value of the `Accept` header.
    pub(super) fn accept(&self) -> &'static str {
        match self.encoding {
            Encoding::Table => table::ACCEPT,
            other => Format::media_type(other, false),
        }
    }

    /// The path of one page of the current state; `limit` 0 requests all of it.
    pub(super) fn list_path(&self, limit: u32, token: &str) -> String {
        let mut parameters = Vec::new();
        if limit > 0 {
            parameters.push(format!("limit={limit}"));
        }
        if !token.is_empty() {
            parameters.push(format!("continue={}", utf8_percent_encode(token, KEPT)));
        }
        self.rows(&parameters.join("&"))
    }

    /// The path of the first page of the state at `rv`.
    pub(super) fn exact_path(&self, rv: ResourceVersion, limit: u32) -> String {
        self.rows(&format!("limit={limit}&resourceVersion={rv}&resourceVersionMatch=Exact"))
    }

    /// The same source, limited to one object; `None` if its name cannot be written in a field selector.
    pub(super) fn only(&self, key: &ObjectKey) -> Option<Self> {
        let name = key.name();
        let namespace = Some(key.namespace()).filter(|namespace| !namespace.is_empty());
        let comma = if self.field_selector.is_empty() { "" } else { "," };
        (!name.contains([',', '=', '\\'])).then(|| Self {
            namespace: namespace.map(Into::into),
            field_selector: format!("{}{comma}metadata.name={name}", self.field_selector),
            ..self.clone()
        })
    }

    /// The same source for an object that does not exist. Listing it returns the store's revision, and the apiserver
    /// only looks up one key.
    pub(super) fn nothing(&self) -> Self {
        let namespace = if self.resource.namespaced { self.namespace.as_deref().unwrap_or("default") } else { "" };
        // A selector by name can be combined with any other.
        self.only(&ObjectKey::new(namespace, NOBODY)).unwrap_or_else(|| self.clone())
    }

    /// The path of a watch that begins with the whole current state and a bookmark at its end (KEP-3157).
    pub(super) fn watch_list_path(&self, timeout_seconds: u64) -> String {
        self.rows(&format!(
            "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &timeoutSeconds={timeout_seconds}"
        ))
    }

    /// The path of a watch of the events after `rv`.
    pub(super) fn watch_path(&self, rv: ResourceVersion, timeout_seconds: u64) -> String {
        self.rows(&format!("watch=true&allowWatchBookmarks=true&resourceVersion={rv}&timeoutSeconds={timeout_seconds}"))
    }

    pub(super) fn options(&self, verb: RequestVerb) -> CallOptions {
        let options = CallOptions::new(verb, self.resource.gvr.group_resource());
        CallOptions { meter: Some(Arc::clone(&self.meter)), ..options }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_escaped() {
        let mut source = ListerWatcher::of(Arc::new(Resource::simple("", "pods", "Pod")));
        assert_eq!(source.query("limit=1"), "/api/v1/pods?limit=1");
        source.namespace = Some("a".into());
        source.field_selector = "spec.nodeName=n1".into();
        source.label_selector = "x in (a,b)".into();
        assert_eq!(
            source.query("limit=1"),
            "/api/v1/namespaces/a/pods?limit=1&fieldSelector=spec.nodeName%3Dn1&labelSelector=x%20in%20%28a%2Cb%29"
        );
        let only = source.only(&ObjectKey::new("b", "x")).unwrap();
        assert_eq!(
            only.exact_path(ResourceVersion(7), 500),
            "/api/v1/namespaces/b/pods?limit=500&resourceVersion=7&resourceVersionMatch=Exact\
             &fieldSelector=spec.nodeName%3Dn1%2Cmetadata.name%3Dx&labelSelector=x%20in%20%28a%2Cb%29"
        );
        assert!(source.only(&ObjectKey::new("", "a,b")).is_none());
        source.field_selector.clear();
        source.label_selector.clear();
        assert_eq!(source.list_path(500, "to+ken"), "/api/v1/namespaces/a/pods?limit=500&continue=to%2Bken");
        assert_eq!(
            source.watch_path(ResourceVersion(7), 300),
            "/api/v1/namespaces/a/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=300"
        );
        assert_eq!(
            source.watch_list_path(9),
            "/api/v1/namespaces/a/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=9"
        );
    }
}
