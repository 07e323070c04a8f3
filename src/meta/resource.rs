//! Resources and kinds as discovery names them.

use std::fmt;
use std::sync::Arc;

/// Group, version and plural resource name. The core group is the empty string.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub resource: Arc<str>,
}

/// The wire encoding a cache holds its objects in. Each needs a reflector of its own: transcoding would lose fields
/// that no schema here knows, and only the apiserver can print the rows of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    Json,
    Protobuf,
    /// JSON, each object within the row that the apiserver printed for it.
    Table,
}

/// What discovery says may be done with a resource; only the verbs of the read path matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbs {
    pub get: bool,
    pub list: bool,
    pub watch: bool,
}

/// One `selectableFields` entry of a CRD version: the field label a request names, without the leading dot.
pub type SelectableField = Arc<str>;

/// One `additionalPrinterColumns` entry of a CRD version: a column of its tables after the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: Arc<str>,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub kind: Arc<str>,
    pub json_path: Arc<str>,
}

/// Who serves a resource; it decides which field labels a selector may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Compiled into the kube-apiserver: the field labels are known by type.
    BuiltIn,
    /// A CustomResourceDefinition, with what it says of this version.
    Custom {
        selectable: Arc<[SelectableField]>,
        columns: Arc<[PrinterColumn]>,
        /// Names one state of the whole definition's spec. Only to notice that it changes: the apiserver then ends
        /// every watch of every version and begins anew, whatever the change was.
        definition: Arc<str>,
    },
    /// An aggregated API server, or a definition that may not be read: only `metadata.name` and
    /// `metadata.namespace` can be evaluated here.
    Unknown,
}

/// One readable resource of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub gvr: Gvr,
    pub kind: Arc<str>,
    pub namespaced: bool,
    pub verbs: Verbs,
    pub origin: Origin,
}

// === impl Encoding ===

impl Encoding {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::Table => "table",
        }
    }
}

// === impl Gvr ===

impl Gvr {
    /// Whether these are events, one kind in two groups. The kube-apiserver keeps no watch cache for them, gives them a time to
    /// live, and attaches many to one lease of etcd, which deletes them all at one revision; of every other type each change has a
    /// revision of its own.
    pub fn is_events(&self) -> bool {
        &*self.resource == "events" && matches!(&*self.group, "" | "events.k8s.io")
    }

    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// `v1` for the core group, otherwise `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of the collection, without a namespace: `/api/v1/pods`, `/apis/apps/v1/deployments`, or with one:
    /// `/api/v1/namespaces/default/pods`.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.resource),
            None => format!("{root}/{}", self.resource),
        }
    }

    /// `pods`, `deployments.apps`: the form of the apiserver's messages.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.resource.to_string() } else { format!("{}.{}", self.resource, self.group) }
    }
}

impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}/{}", self.version, self.resource)
        } else {
            write!(f, "{}/{}/{}", self.group, self.version, self.resource)
        }
    }
}

impl fmt::Debug for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
