//! The few Kubernetes API types that the server needs. They are not shared with informerd, so that a mistake in one
//! of them is not repeated in the other.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

/// Group, version and plural resource name. The core group is the empty string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gvr {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub resource: Arc<str>,
}

/// The flat key of an object: `namespace/name`, or `name` for cluster scope. Keys are ordered by their bytes, so
/// `a-b/x` sorts before `a/x`, as in the apiserver's lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    pub metadata: StatusMetadata,
    pub status: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    pub code: u16,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct StatusMetadata {
    /// Only an expired continue token sets it.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
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
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct StatusCause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
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

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.as_bytes().cmp(other.0.as_bytes())
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
            metadata: StatusMetadata::default(),
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

    /// Sets `details.retryAfterSeconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// Compact JSON without a trailing newline, with the escapes of Go.
    pub fn to_json(&self) -> String {
        let mut body = serde_json::to_string(self).unwrap_or_default();
        for (plain, escaped) in
            [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")]
        {
            body = body.replace(plain, escaped);
        }
        body
    }
}
