//! Discovery documents: the aggregated form, and the older form with one document per group version.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::meta::{Gvr, Verbs};

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

/// `APIGroupDiscoveryList` of apidiscovery.k8s.io/v2 (KEP-3352), or one of the older `APIVersions` and `APIGroupList`.
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    kind: String,
    #[serde(default, deserialize_with = "readable")]
    items: Vec<Group>,
    /// Only in `APIVersions`.
    #[serde(default, deserialize_with = "readable")]
    versions: Vec<String>,
    /// Only in `APIGroupList`.
    #[serde(default, deserialize_with = "readable")]
    groups: Vec<LegacyGroup>,
}

/// `APIResourceList`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LegacyVersion {
    group_version: String,
    #[serde(default, deserialize_with = "readable")]
    resources: Vec<LegacyResource>,
}

#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupMetadata,
    #[serde(default, deserialize_with = "readable")]
    versions: Vec<Version>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupMetadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
    #[serde(default, deserialize_with = "readable")]
    resources: Vec<VersionResource>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionResource {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "readable")]
    verbs: Vec<String>,
    #[serde(default)]
    singular_resource: String,
    #[serde(default, deserialize_with = "readable")]
    short_names: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct LegacyGroup {
    #[serde(default, deserialize_with = "readable")]
    versions: Vec<LegacyGroupVersion>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroupVersion {
    group_version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyResource {
    name: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "readable")]
    verbs: Vec<String>,
    #[serde(default)]
    singular_name: String,
    #[serde(default, deserialize_with = "readable")]
    short_names: Vec<String>,
}

/// The resources of an aggregated document, in its order: of each group the preferred version first.
///
/// # Errors
/// It is no such document.
pub fn read_aggregated(document: &[u8]) -> serde_json::Result<Vec<ApiResource>> {
    Ok(serde_json::from_slice::<Document>(document)?.resources().collect())
}

// === impl Document ===

impl Document {
    pub(super) fn is_aggregated(&self) -> bool {
        self.kind == "APIGroupDiscoveryList"
    }

    /// The resources of an aggregated document. Entries that only have subresources, or that are not known yet, are
    /// left out.
    pub(super) fn resources(self) -> impl Iterator<Item = ApiResource> {
        self.items.into_iter().flat_map(|group| {
            let name = group.metadata.name;
            group.versions.into_iter().flat_map(move |version| {
                let name = name.clone();
                version.resources.into_iter().filter_map(move |resource| {
                    let kind = resource.response_kind.map(|kind| kind.kind).filter(|kind| !kind.is_empty())?;
                    Some(ApiResource {
                        gvr: Gvr::new(&name, &version.version, &resource.resource),
                        kind,
                        namespaced: resource.scope == "Namespaced",
                        verbs: verbs(&resource.verbs),
                        singular: resource.singular_resource,
                        short_names: resource.short_names,
                    })
                })
            })
        })
    }

    /// The group versions that an older document names, as paths below the server's root.
    pub(super) fn legacy_paths(&self) -> Vec<String> {
        let core = self.versions.iter().map(|version| format!("/api/{version}"));
        let groups = self.groups.iter().flat_map(|group| &group.versions);
        core.chain(groups.map(|version| format!("/apis/{}", version.group_version))).collect()
    }
}

// === impl LegacyVersion ===

impl LegacyVersion {
    pub(super) fn resources(self) -> impl Iterator<Item = ApiResource> {
        let (group, version) = match self.group_version.split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), self.group_version),
        };
        self.resources.into_iter().filter(|resource| !resource.name.contains('/')).map(move |resource| ApiResource {
            gvr: Gvr::new(&group, &version, &resource.name),
            kind: resource.kind,
            namespaced: resource.namespaced,
            verbs: verbs(&resource.verbs),
            singular: resource.singular_name,
            short_names: resource.short_names,
        })
    }
}

/// The elements of a list that can be read. Servers of others write parts of these documents: what cannot be read costs
/// itself alone. `null` is an empty list, as Go writes it.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let elements = Option::<Vec<Box<RawValue>>>::deserialize(deserializer)?.unwrap_or_default();
    let read = |element: Box<RawValue>| {
        let read = serde_json::from_str(element.get());
        read.inspect_err(|error| tracing::debug!(%error, "a part of discovery cannot be read")).ok()
    };
    Ok(elements.into_iter().filter_map(read).collect())
}

fn verbs(names: &[String]) -> Verbs {
    let has = |verb: &str| names.iter().any(|name| name == verb);
    Verbs { get: has("get"), list: has("list"), watch: has("watch") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_aggregated_form() {
        let text = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
            {"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1","freshness":"Current","resources":[
                {"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced",
                 "singularResource":"deployment","verbs":["create","get","list","watch"],"subresources":[{"subresource":"scale"}]}]}]},
            {"versions":[{"version":"v1","resources":[
                {"resource":"nodes","responseKind":{"kind":"Node"},"scope":"Cluster","verbs":["get","list"]},
                {"resource":"onlysub","scope":"Cluster","verbs":[]}]}]}]}"#;
        let document: Document = serde_json::from_str(text).unwrap();
        assert!(document.is_aggregated());
        let all: Vec<_> = document.resources().collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].gvr, Gvr::new("apps", "v1", "deployments"));
        assert_eq!(all[0].verbs, Verbs { get: true, list: true, watch: true });
        assert!(all[0].namespaced && !all[1].namespaced && !all[1].verbs.watch);
        assert_eq!(all[1].gvr, Gvr::new("", "v1", "nodes"));
    }

    #[test]
    fn what_cannot_be_read_costs_itself_alone() {
        let good = r#"{"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["list"]}"#;
        let version = |resources: &str| format!(r#"{{"version":"v1","resources":{resources}}}"#);
        let group = |name: &str, versions: &str| format!(r#"{{"metadata":{{"name":"{name}"}},"versions":{versions}}}"#);
        let odd =
            r#"{"resource":7},{"resource":"a","responseKind":{"kind":"A"},"verbs":null,"shortNames":null},{},null"#;
        let items = [
            group("a", &format!("[{}]", version(&format!("[{odd},{good}]")))),
            group("b", &format!(r#"[{{"version":null}},{},{}]"#, version("null"), version(&format!("[{good}]")))),
            group("c", "null"),
            r#"{"metadata":[]}"#.to_owned(),
            "3".to_owned(),
        ];
        let text = format!(r#"{{"kind":"APIGroupDiscoveryList","items":[{}]}}"#, items.join(","));
        let document: Document = serde_json::from_str(&text).unwrap();
        let all: Vec<_> = document.resources().map(|resource| resource.gvr).collect();
        assert_eq!(all, [Gvr::new("a", "v1", "a"), Gvr::new("a", "v1", "pods"), Gvr::new("b", "v1", "pods")]);
        let text = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":null},{"name":"pods","verbs":null}]}"#;
        let list: LegacyVersion = serde_json::from_str(text).unwrap();
        assert_eq!(list.resources().count(), 1);
        let groups: Document =
            serde_json::from_str(r#"{"kind":"APIGroupList","groups":null,"versions":null}"#).unwrap();
        assert!(groups.legacy_paths().is_empty());
    }

    #[test]
    fn reads_the_older_forms() {
        let versions: Document = serde_json::from_str(r#"{"kind":"APIVersions","versions":["v1"]}"#).unwrap();
        assert!(!versions.is_aggregated());
        assert_eq!(versions.legacy_paths(), ["/api/v1"]);
        let text = r#"{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}"#;
        let groups: Document = serde_json::from_str(text).unwrap();
        assert_eq!(groups.legacy_paths(), ["/apis/apps/v1"]);
        let text = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
            {"name":"pods","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]},{"name":"pods/log","kind":"Pod","verbs":["get"]}]}"#;
        let list: LegacyVersion = serde_json::from_str(text).unwrap();
        let all: Vec<_> = list.resources().collect();
        assert_eq!(all.len(), 1);
        assert_eq!((&all[0].gvr, all[0].namespaced), (&Gvr::new("", "v1", "pods"), true));
    }
}
