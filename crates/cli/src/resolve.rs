//! Resolves the name of a resource through discovery, as kubectl does. If discovery does not answer, the running
//! informers show which resource may be meant.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use http_body_util::{BodyExt, Limited};
use informerd_api::v1;
use tokio::time::timeout;

use super::connection::Connection;
use super::failure::Failure;
use super::readers::{ApiResource, Readers};

const AGGREGATED: HeaderValue =
    HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
/// Clusters with thousands of definitions need some MiB.
const LARGEST: usize = 64 << 20;
/// After this time without discovery, the informers are asked.
const SOON: Duration = Duration::from_millis(500);

/// A resource with the names from discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) resource: v1::Resource,
    /// For example `pod`; the plural name if there is no singular one.
    pub(super) singular: String,
    pub(super) namespaced: bool,
}

/// Resolves a name. Waits for discovery for at most `patience`.
pub(super) async fn resolve(
    connection: &Connection,
    readers: Readers,
    text: &str,
    patience: Duration,
) -> Result<Named, Failure> {
    let text = text.to_lowercase();
    let mut discovering = pin!(discover(connection.clone(), readers));
    let discovered = match timeout(SOON.min(patience), &mut discovering).await {
        Ok(discovered) => discovered,
        Err(_elapsed) => {
            if let Some(named) = without_discovery(connection, &text).await {
                return Ok(named);
            }
            let late = || Err(format!("discovery has not answered within {patience:?}"));
            timeout(patience.saturating_sub(SOON), discovering).await.unwrap_or_else(|_elapsed| late())
        }
    };
    let why = match discovered {
        Ok(resources) => {
            return find(&resources, &text).ok_or_else(|| {
                Failure::Said(format!("the cluster has no resource {text:?}; a group is named as in deployments.apps"))
            });
        }
        Err(why) => why,
    };
    let named = without_discovery(connection, &text).await;
    if let Some(told) = connection.peer.stranger() {
        return Err(Failure::Said(told));
    }
    named.ok_or_else(|| {
        Failure::Said(format!(
            "the apiserver cannot say what {text:?} is: {why}; no informer has that name: name the resource with its \
             version, as in pods.v1. or deployments.v1.apps"
        ))
    })
}

/// Resolves a full name, or the name of a running informer. This needs no apiserver.
async fn without_discovery(connection: &Connection, text: &str) -> Option<Named> {
    if let Some(named) = Named::in_full(text) {
        return Some(named);
    }
    let informers = connection.cache().list_informers(v1::ListInformersRequest {}).await.ok()?;
    of_informers(&informers.into_inner().informers, text)
}

/// All resources that the apiserver serves.
async fn discover(mut connection: Connection, readers: Readers) -> Result<Vec<ApiResource>, String> {
    let mut resources = Vec::new();
    let headers = HeaderMap::from_iter([(ACCEPT, AGGREGATED)]);
    for path in ["/api", "/apis"] {
        let failed = |error: &dyn fmt::Display| format!("discovery failed: {error}");
        let answer = connection.get(path, &headers).await.map_err(|error| failed(&error))?;
        if !answer.status().is_success() {
            return Err(format!("GET {path} gave {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| failed(&error))?.to_bytes();
        resources.extend((readers.resources)(&body).map_err(|error| failed(&error))?);
    }
    Ok(resources)
}

/// The resource of a running informer. Informers know only plural names. The core group takes precedence over others.
fn of_informers(informers: &[v1::Informer], text: &str) -> Option<Named> {
    let (name, group) = text.split_once('.').map_or((text, None), |(name, group)| (name, Some(group)));
    let all = informers.iter().filter_map(|informer| informer.resource.as_ref());
    let named = all.filter(|of| of.resource == name && group.is_none_or(|group| of.group == group));
    let found = named.min_by_key(|of| (!of.group.is_empty(), &of.group, &of.version))?;
    Some(Named::undiscovered(found.clone()))
}

/// Finds `resource`, `resource.group` or `resource.version.group`. The name of the core group is empty.
fn find(resources: &[ApiResource], text: &str) -> Option<Named> {
    let (name, rest) = text.split_once('.').map_or((text, None), |(name, rest)| (name, Some(rest)));
    let versioned = rest.and_then(|rest| rest.split_once('.'));
    // As in kubectl, the name of an existing version counts as a version.
    if let Some(found) = versioned.and_then(|(version, group)| search(resources, name, Some(version), Some(group))) {
        return Some(found);
    }
    search(resources, name, None, rest)
}

/// The first match: plural names first, then singular names, then short names.
fn search(resources: &[ApiResource], name: &str, version: Option<&str>, group: Option<&str>) -> Option<Named> {
    let is_asked_for = |resource: &ApiResource| {
        group.is_none_or(|group| resource.group == group) && version.is_none_or(|version| resource.version == version)
    };
    let kinds: [fn(&ApiResource, &str) -> bool; 3] = [
        |resource, name| resource.resource == name,
        |resource, name| resource.singular == name,
        |resource, name| resource.short_names.iter().any(|short| short == name),
    ];
    let first = |is: &fn(&ApiResource, &str) -> bool| {
        resources.iter().find(|resource| is_asked_for(resource) && is(resource, name))
    };
    kinds.iter().find_map(first).map(Named::new)
}

// === impl Named ===

impl Named {
    fn new(found: &ApiResource) -> Self {
        let ApiResource { group, version, resource, namespaced, singular, .. } = found.clone();
        let singular = if singular.is_empty() { resource.clone() } else { singular };
        Self { resource: v1::Resource { group, version, resource }, singular, namespaced }
    }

    /// Parses `pods.v1.` or `deployments.v1.apps`, which contain everything that a request needs.
    fn in_full(text: &str) -> Option<Self> {
        let (resource, rest) = text.split_once('.')?;
        let (version, group) = rest.split_once('.')?;
        let is_version = version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let [group, version, resource] = [group, version, resource].map(str::to_owned);
        (is_version && !resource.is_empty()).then(|| Self::undiscovered(v1::Resource { group, version, resource }))
    }

    /// A resource that discovery did not describe. If it is not namespaced, a request with a namespace is refused.
    fn undiscovered(resource: v1::Resource) -> Self {
        Self { singular: resource.resource.clone(), resource, namespaced: true }
    }

    /// For example `pods` or `deployments.apps`.
    pub(super) fn short(&self) -> String {
        with_group(&self.resource.resource, &self.resource.group)
    }

    /// For example `pod/web-1` or `deployment.apps/web`, as `kubectl -o name` prints it.
    pub(super) fn object(&self, name: &str) -> String {
        format!("{}/{name}", with_group(&self.singular, &self.resource.group))
    }
}

fn with_group(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, versions: &[&str], resources: &[(&str, &str, &str)]) -> Vec<ApiResource> {
        let resource = |version: &str, (plural, singular, short): &(&str, &str, &str)| ApiResource {
            group: name.to_owned(),
            version: version.to_owned(),
            resource: (*plural).to_owned(),
            namespaced: true,
            singular: (*singular).to_owned(),
            short_names: vec![(*short).to_owned()],
        };
        let of_version = |version: &&str| resources.iter().map(|names| resource(version, names)).collect::<Vec<_>>();
        versions.iter().flat_map(of_version).collect()
    }

    #[test]
    fn what_is_named_in_full() {
        let full = |text: &str| {
            Named::in_full(text).map(|named| {
                let short = named.short();
                (named.resource.group, named.resource.version, short)
            })
        };
        let some = |group: &str, version: &str, short: &str| Some((group.into(), version.into(), short.into()));
        assert_eq!(full("pods.v1."), some("", "v1", "pods"));
        assert_eq!(full("deployments.v1beta1.apps"), some("apps", "v1beta1", "deployments.apps"));
        for short in ["pods", "deployments.apps", "crontabs.stable.example.com", ".v1.apps", "crontabs.vip.example.com"]
        {
            assert_eq!(full(short), None, "{short}");
        }
    }

    #[test]
    fn names_of_informers() {
        let informer = |group: &str, version: &str, resource: &str| v1::Informer {
            resource: Some(v1::Resource { group: group.into(), version: version.into(), resource: resource.into() }),
            ..Default::default()
        };
        let informers = [
            informer("events.k8s.io", "v1", "events"),
            informer("", "v1", "events"),
            informer("apps", "v1", "deployments"),
        ];
        let found = |text: &str| of_informers(&informers, text).map(|named| named.short());
        assert_eq!(found("events").as_deref(), Some("events"));
        assert_eq!(found("events.events.k8s.io").as_deref(), Some("events.events.k8s.io"));
        assert_eq!(found("deployments").as_deref(), Some("deployments.apps"));
        for unknown in ["deployment", "pods", "deployments.batch"] {
            assert_eq!(found(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn names_as_kubectl_takes_them() {
        let groups = [
            group("", &["v1"], &[("pods", "pod", "po"), ("events", "event", "ev")]),
            group("apps", &["v1", "v1beta1"], &[("deployments", "deployment", "deploy")]),
            group("events.k8s.io", &["v1"], &[("events", "event", "ev")]),
        ]
        .concat();
        for (text, expected) in [
            ("pods", "/v1/pods"),
            ("pod", "/v1/pods"),
            ("po", "/v1/pods"),
            ("pods.v1.", "/v1/pods"),
            ("deployments", "apps/v1/deployments"),
            ("deploy.apps", "apps/v1/deployments"),
            ("deployments.v1beta1.apps", "apps/v1beta1/deployments"),
            ("events", "/v1/events"),
            ("events.events.k8s.io", "events.k8s.io/v1/events"),
            ("events.v1.events.k8s.io", "events.k8s.io/v1/events"),
        ] {
            let Named { resource, .. } = find(&groups, text).unwrap_or_else(|| panic!("{text}"));
            let v1::Resource { group, version, resource } = resource;
            assert_eq!(format!("{group}/{version}/{resource}"), expected, "{text}");
        }
        for text in ["", "x", "pods.apps", "pods.v2.", "deployments.v2.apps", "."] {
            assert_eq!(find(&groups, text), None, "{text}");
        }
        let named = find(&groups, "deploy").unwrap();
        assert_eq!((named.short().as_str(), named.object("web").as_str()), ("deployments.apps", "deployment.apps/web"));
    }
}
