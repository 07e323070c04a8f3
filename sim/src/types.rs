//! The few Kubernetes API types that the server needs. They are not shared with informerd, so that a mistake in one
//! of them is not repeated in the other.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::encode;

/// Group, version and plural resource name. The core group is the empty string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gvr {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub resource: Arc<str>,
}

/// The flat key of an object: `namespace/name`, or `name` for cluster scope. Keys are ordered by their bytes, so
/// `a-b/x` sorts before `a/x`, as in the apiserver's lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

/// A namespace and a name, each optional.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub namespace: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
}

/// The effect of a change on its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

/// The attributes of an object that selectors need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// In the order of the kind's fields.
    pub(crate) fields: Vec<String>,
}

/// `metav1.Status` of a failure, in the apiserver's member order.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    /// Only an expired continue token has a member here.
    pub metadata: BTreeMap<&'static str, String>,
    pub status: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    pub code: u16,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusDetails {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StatusCause {
    pub reason: &'static str,
    pub message: &'static str,
}

// === impl Gvr ===

impl Gvr {
    pub(crate) fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// `v1`, or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, or `deployments.apps`.
    pub(crate) fn group_resource(&self) -> String {
        if self.group.is_empty() { self.resource.to_string() } else { format!("{}.{}", self.resource, self.group) }
    }

    /// The path of the collection.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let namespace = namespace.map_or(String::new(), |namespace| format!("/namespaces/{namespace}"));
        format!("{root}/{}{namespace}/{}", self.api_version(), self.resource)
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    /// `namespace` is empty for cluster-scoped objects.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(namespace, _)| namespace)
    }

    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }
}

// A key borrows as its flat string, so ordered maps can be searched by a prefix.
impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

// === impl Scope ===

impl Scope {
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
            && self.name.as_deref().is_none_or(|name| name == key.name())
    }
}

// === impl Attributes ===

impl Attributes {
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Empty for a field that the kind does not have.
    pub(crate) fn field(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", String::as_str)
    }
}

// === impl Status ===

impl Status {
    /// A failure with a code, a reason of `metav1.StatusReason` ("" to omit it) and a message.
    pub fn failure(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: BTreeMap::new(),
            status: "Failure",
            message: message.into(),
            reason: reason.into(),
            details: None,
            code,
        }
    }

    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.details = Some(details);
        self
    }

    /// Compact JSON without a trailing newline, with the escapes of Go.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        encode::escape_html(serde_json::to_vec(self).unwrap_or_default())
    }
}
