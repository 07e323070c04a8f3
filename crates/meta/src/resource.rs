//! Resources and kinds as named by discovery.

use std::fmt;
use std::sync::Arc;

/// Group, version and plural resource name. The core group is the empty string.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub resource: Arc<str>,
}

/// The encoding in which a cache stores its objects. Each encoding needs its own reflector: transcoding would lose
/// fields that no schema here knows, and only the apiserver can print the rows of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    #[default]
    Json,
    Protobuf,
    /// JSON. Each object is in the row that the apiserver printed for it.
    Table,
}

/// The verbs that discovery lists for a resource. Only those of the read path matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbs {
    pub get: bool,
    pub list: bool,
    pub watch: bool,
}

/// One `selectableFields` entry of a CRD version: the field label of a request, without the leading dot.
pub type SelectableField = Arc<str>;

/// One `additionalPrinterColumns` entry of a CRD version: a column of its tables after the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: Arc<str>,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub kind: Arc<str>,
    pub json_path: Arc<str>,
}

/// The server of a resource. It determines which field labels a selector may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built into the kube-apiserver. The field labels are known for each type.
    BuiltIn,
    /// Defined by a CustomResourceDefinition, with the data of this version.
    Custom {
        selectable: Arc<[SelectableField]>,
        columns: Arc<[PrinterColumn]>,
        /// Identifies one state of the spec of the whole definition. It only serves to detect changes: after any
        /// change, the apiserver ends all watches of all versions and starts again.
        definition: Arc<str>,
    },
    /// From an aggregated API server, or from a definition that may not be read. Only `metadata.name` and
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

#[cfg(any(test, feature = "testing"))]
impl Resource {
    /// A namespaced resource of version v1, which is built in and can be read and watched.
    pub fn simple(group: &str, name: &str, kind: &str) -> Self {
        let verbs = Verbs { get: true, list: true, watch: true };
        Self { gvr: Gvr::new(group, "v1", name), kind: kind.into(), namespaced: true, verbs, origin: Origin::BuiltIn }
    }
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
    /// Whether this is the resource `events`, which is one kind in two groups. The kube-apiserver has no watch cache
    /// for events and gives them a time to live. It attaches many events to one etcd lease, and etcd deletes them all
    /// at one revision. For every other type, each change has its own revision.
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

    /// The path of the collection. Without a namespace: `/api/v1/pods`, `/apis/apps/v1/deployments`. With one:
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

    /// `pods`, `deployments.apps`: the form in the apiserver's messages.
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
