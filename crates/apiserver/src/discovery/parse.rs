//! Discovery documents: the aggregated form, and the older form with one document per group version. The older form of
//! single groups and group versions is read when only these have changed.

use std::sync::Arc;

use serde::Deserialize;

use crate::lenient::{nullable, readable};
use informerd_meta::{Gvr, Verbs};

/// A resource as discovery describes it, without the server that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    pub gvr: Gvr,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Verbs,
    /// Other names by which kubectl's users call it: the singular one, which may be empty, and short ones.
    pub singular: String,
    pub short_names: Vec<String>,
}

#[cfg(any(test, feature = "testing"))]
impl ApiResource {
    /// A namespaced resource of the core group that can be read and watched.
    pub fn core(name: &str, kind: &str) -> Self {
        Self {
            gvr: Gvr::new("", "v1", name),
            kind: kind.into(),
            namespaced: true,
            verbs: Verbs { get: true, list: true, watch: true },
            singular: String::new(),
            short_names: Vec::new(),
        }
    }
}

/// A group version, and its resources if they were read.
#[derive(Clone, Debug)]
pub(super) struct VersionRead {
    pub(super) group: Arc<str>,
    pub(super) version: Arc<str>,
    /// `None` if its server could not be asked.
    pub(super) resources: Option<Vec<ApiResource>>,
    /// Whether these are all that there are now, as its server said.
    pub(super) is_current: bool,
}

/// `APIGroupDiscoveryList` of apidiscovery.k8s.io/v2 or v2beta1 (KEP-3352), or one of the older `APIVersions` and
/// `APIGroupList`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Document {
    #[serde(deserialize_with = "nullable")]
    kind: String,
    #[serde(deserialize_with = "readable")]
    items: Vec<Group>,
    /// Only in `APIVersions`.
    #[serde(deserialize_with = "readable")]
    versions: Vec<String>,
    /// Only in `APIGroupList`.
    #[serde(deserialize_with = "readable")]
    groups: Vec<LegacyGroup>,
}

/// `APIResourceList`.
#[derive(Debug, Deserialize)]
pub(super) struct LegacyVersion {
    #[serde(default, deserialize_with = "readable")]
    resources: Vec<LegacyResource>,
}

#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default, deserialize_with = "nullable")]
    metadata: GroupMetadata,
    #[serde(default, deserialize_with = "readable")]
    versions: Vec<Version>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupMetadata {
    #[serde(default, deserialize_with = "nullable")]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    #[serde(default, deserialize_with = "nullable")]
    version: String,
    #[serde(default, deserialize_with = "readable")]
    resources: Vec<VersionResource>,
    /// `Stale` if the server of the group version could not be asked.
    #[serde(default, deserialize_with = "nullable")]
    freshness: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionResource {
    #[serde(default, deserialize_with = "nullable")]
    resource: String,
    #[serde(default, deserialize_with = "nullable")]
    response_kind: ResponseKind,
    #[serde(default, deserialize_with = "nullable")]
    scope: String,
    #[serde(default, deserialize_with = "readable")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    singular_resource: String,
    #[serde(default, deserialize_with = "readable")]
    short_names: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct ResponseKind {
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
}

/// A group of `APIGroupList`, or an `APIGroup` alone.
#[derive(Debug, Deserialize)]
pub(super) struct LegacyGroup {
    #[serde(default, deserialize_with = "readable")]
    versions: Vec<LegacyGroupVersion>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroupVersion {
    #[serde(default, deserialize_with = "nullable")]
    group_version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyResource {
    #[serde(default, deserialize_with = "nullable")]
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    namespaced: bool,
    #[serde(default, deserialize_with = "nullable")]
    kind: String,
    #[serde(default, deserialize_with = "readable")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    singular_name: String,
    #[serde(default, deserialize_with = "readable")]
    short_names: Vec<String>,
}

/// The resources of an aggregated document, in its order: of each group the preferred version first.
///
/// # Errors
/// It is no such document.
pub fn read_aggregated(document: &[u8]) -> serde_json::Result<Vec<ApiResource>> {
    let document: Document = serde_json::from_slice(document)?;
    Ok(document.group_versions().into_iter().filter_map(|version| version.resources).flatten().collect())
}

// === impl Document ===

impl Document {
    pub(super) fn is_aggregated(&self) -> bool {
        self.kind == "APIGroupDiscoveryList" || !self.items.is_empty()
    }

    /// Whether it is the document of the core group, which has no name, or of all others. The document that was asked for
    /// says this: a name that is missing must not give its resources to the core group.
    pub(super) fn keep(&mut self, core: bool) {
        self.items.retain(|group| group.metadata.name.is_empty() == core);
    }

    /// The group versions of an aggregated document. Entries that only have subresources, or that are not known yet, are
    /// left out.
    pub(super) fn group_versions(self) -> Vec<VersionRead> {
        let of_group = |group: Group| {
            let name: Arc<str> = group.metadata.name.into();
            let versions = group.versions.into_iter().filter(|version| !version.version.is_empty());
            versions.map(move |version| version.read(&name))
        };
        self.items.into_iter().flat_map(of_group).collect()
    }

    /// The group versions that an older document names. Each name is `GROUP/VERSION`, or `VERSION` in the core group.
    pub(super) fn named_versions(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let core = self.versions.iter().filter(|version| !version.is_empty());
        let core = core.map(|version| (Arc::from(""), Arc::from(version.as_str())));
        core.chain(self.groups.iter().flat_map(LegacyGroup::versions)).collect()
    }
}

// === impl Version ===

impl Version {
    fn read(self, group: &Arc<str>) -> VersionRead {
        let version: Arc<str> = self.version.into();
        let gvr = |resource: String| Gvr {
            group: Arc::clone(group),
            version: Arc::clone(&version),
            resource: resource.into(),
        };
        let resources = self.resources.into_iter().filter_map(|resource| {
            let kind = Some(resource.response_kind.kind).filter(|kind| !kind.is_empty())?;
            Some(ApiResource {
                gvr: Some(resource.resource).filter(|name| !name.is_empty()).map(gvr)?,
                kind,
                namespaced: resource.scope == "Namespaced",
                verbs: verbs(&resource.verbs),
                singular: resource.singular_resource,
                short_names: resource.short_names,
            })
        });
        let resources: Vec<_> = resources.collect();
        let is_current = self.freshness != "Stale";
        let is_unread = resources.is_empty() && !is_current;
        VersionRead { group: Arc::clone(group), version, resources: (!is_unread).then_some(resources), is_current }
    }
}

// === impl LegacyGroup ===

impl LegacyGroup {
    /// In the order of preference.
    pub(super) fn versions(&self) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
        let split = |version: &LegacyGroupVersion| {
            let (group, version) = version.group_version.split_once('/')?;
            Some((group.into(), version.into())).filter(|_| !group.is_empty() && !version.is_empty())
        };
        self.versions.iter().filter_map(split)
    }
}

// === impl LegacyVersion ===

impl LegacyVersion {
    /// The resources of the group version that was asked for, whatever the document says itself.
    pub(super) fn resources(self, group: &Arc<str>, version: &Arc<str>) -> Vec<ApiResource> {
        let is_resource = |resource: &LegacyResource| !resource.name.is_empty() && !resource.name.contains('/');
        let read = |resource: LegacyResource| ApiResource {
            gvr: Gvr { group: Arc::clone(group), version: Arc::clone(version), resource: resource.name.into() },
            kind: resource.kind,
            namespaced: resource.namespaced,
            verbs: verbs(&resource.verbs),
            singular: resource.singular_name,
            short_names: resource.short_names,
        };
        self.resources.into_iter().filter(is_resource).map(read).collect()
    }
}

fn verbs(names: &[String]) -> Verbs {
    let has = |verb: &str| names.iter().any(|name| name == verb);
    Verbs { get: has("get"), list: has("list"), watch: has("watch") }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
pub(super) mod tests;
