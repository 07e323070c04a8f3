//! The responses to requests that do not name a resource: discovery in both formats, version, health.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::body::{self, Body};
use super::handler::Path;
use super::registry::Kind;
use super::store::Store;
use super::subresource;
use super::write::no_such_resource;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

pub(super) fn answer(store: &Store, path: &str, headers: &HeaderMap, routed: Option<&Path<'_>>) -> Response<Body> {
    let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let aggregated = accept.contains("g=apidiscovery.k8s.io") && accept.contains("v=v2;");
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let groups = groups(store);
    match parts[..] {
        ["healthz" | "livez" | "readyz", ..] => body::text(StatusCode::OK, "ok"),
        ["version"] => plain(&json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.0-sim", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
        })),
        ["api" | "apis"] if aggregated => {
            let core = parts == ["api"];
            let items: Vec<Value> = groups
                .iter()
                .filter(|((group, _), _)| group.is_empty() == core)
                .map(|((group, version), kinds)| discovered(group, version, kinds))
                .chain(store.inner.read().foreign.clone().filter(|_| !core))
                .collect();
            let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
                "items": items});
            let etag = format!("\"{}\"", uuid_of(&list.to_string()));
            let same =
                headers.get(http::header::IF_NONE_MATCH).is_some_and(|given| given.as_bytes() == etag.as_bytes());
            let mut response = if same {
                body::typed(StatusCode::NOT_MODIFIED, AGGREGATED, body::full(""))
            } else {
                body::typed(StatusCode::OK, AGGREGATED, body::full(list.to_string() + "\n"))
            };
            if let Ok(etag) = etag.parse() {
                response.headers_mut().insert(http::header::ETAG, etag);
            }
            response.headers_mut().insert(http::header::VARY, http::HeaderValue::from_static("Accept"));
            response
        }
        ["openapi", "v3"] => {
            let path = |group: &str, version: &str| match group {
                "" => format!("api/{version}"),
                _ => format!("apis/{group}/{version}"),
            };
            let paths: serde_json::Map<String, Value> = groups
                .keys()
                .map(|(group, version)| path(group, version))
                .map(|path| (path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash=sim")})))
                .collect();
            plain(&json!({"paths": paths}))
        }
        ["openapi", "v3", "api", version] => openapi(&groups, "", version),
        ["openapi", "v3", "apis", group, version] => openapi(&groups, group, version),
        ["api"] => plain(&json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["apis"] => {
            let groups: Vec<Value> =
                groups.keys().filter(|(group, _)| !group.is_empty()).map(|(g, v)| api_group(g, v)).collect();
            plain(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", group] => match groups.keys().find(|(of, _)| &**of == group) {
            Some((group, version)) => {
                let mut object = api_group(group, version);
                object["kind"] = json!("APIGroup");
                object["apiVersion"] = json!("v1");
                plain(&object)
            }
            None => body::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        },
        ["api", version] => resources(&groups, "", version),
        ["apis", group, version] => resources(&groups, group, version),
        _ => not_found(store, routed),
    }
}

/// Under a known built-in group the response is a Status, otherwise it is that of a plain web server.
pub(super) fn not_found(store: &Store, routed: Option<&Path<'_>>) -> Response<Body> {
    let known = routed.is_some_and(|path| {
        store.kinds().iter().any(|k| !k.custom && &*k.gvr.group == path.group && &*k.gvr.version == path.version)
    });
    if !known {
        return body::text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    body::status(&no_such_resource())
}

type Groups = BTreeMap<(Arc<str>, Arc<str>), Vec<Arc<Kind>>>;

fn groups(store: &Store) -> Groups {
    let mut groups = Groups::new();
    for kind in store.kinds() {
        groups.entry((kind.gvr.group.clone(), kind.gvr.version.clone())).or_default().push(kind);
    }
    groups
}

fn discovered(group: &str, version: &str, kinds: &[Arc<Kind>]) -> Value {
    let resource = |kind: &Arc<Kind>| {
        let scope = if kind.namespaced { "Namespaced" } else { "Cluster" };
        let mut resource = json!({
            "resource": &*kind.gvr.resource, "scope": scope, "singularResource": kind.singular, "verbs": VERBS,
            "responseKind": {"group": group, "version": version, "kind": &*kind.kind},
        });
        if matches!(&*kind.id, "pods" | "services" | "deployments.apps" | "replicasets.apps" | "daemonsets.apps") {
            resource["categories"] = json!(["all"]);
        }
        if subresource::can_scale(kind) {
            let response = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
            resource["subresources"] =
                json!([{"subresource": "scale", "verbs": ["get", "patch", "update"], "responseKind": response}]);
        }
        if !kind.short.is_empty() {
            resource["shortNames"] = json!(kind.short);
        }
        resource
    };
    let resources: Vec<Value> = kinds.iter().map(resource).collect();
    let mut metadata = json!({});
    if !group.is_empty() {
        metadata["name"] = json!(group);
    }
    json!({"metadata": metadata,
        "versions": [{"version": version, "resources": resources, "freshness": "Current"}]})
}

fn api_group(group: &str, version: &str) -> Value {
    let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
    json!({"name": group, "versions": [version.clone()], "preferredVersion": version})
}

fn resources(groups: &Groups, group: &str, version: &str) -> Response<Body> {
    let Some(kinds) = groups.get(&(group.into(), version.into())) else {
        return body::text(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    let resource = |kind: &Arc<Kind>| {
        json!({"name": &*kind.gvr.resource, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": &*kind.kind, "verbs": VERBS, "shortNames": kind.short})
    };
    let resources: Vec<Value> = kinds.iter().map(resource).collect();
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    plain(&json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}))
}

/// A document without schemas. It states that patches validate fields, which kubectl checks before it applies.
fn openapi(groups: &Groups, group: &str, version: &str) -> Response<Body> {
    let Some(kinds) = groups.get(&(group.into(), version.into())) else {
        return body::text(StatusCode::NOT_FOUND, "404 page not found\n");
    };
    let path = |kind: &Arc<Kind>| {
        let namespace = kind.namespaced.then_some("{namespace}");
        let gvk = json!({"group": group, "version": version, "kind": &*kind.kind});
        let parameter = json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        let patch = json!({"parameters": [parameter], "x-kubernetes-group-version-kind": gvk, "responses": {}});
        (format!("{}/{{name}}", kind.gvr.path(namespace)), json!({"patch": patch}))
    };
    let paths: serde_json::Map<String, Value> = kinds.iter().map(path).collect();
    plain(&json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.0-sim"}, "paths": paths,
        "components": {"schemas": {}}}))
}

pub(super) fn is_access_review(path: &str) -> bool {
    path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
}

/// Every user may do everything here.
pub(super) fn access_review() -> Response<Body> {
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
        "status": {"allowed": true, "reason": "the simulated server allows everything"}});
    body::json(StatusCode::CREATED, body::full(review.to_string() + "\n"))
}

fn plain(value: &Value) -> Response<Body> {
    body::json(StatusCode::OK, body::full(value.to_string() + "\n"))
}

/// A short fingerprint for an ETag.
fn uuid_of(text: &str) -> String {
    let sum = text.bytes().fold(0u64, |sum, byte| super::write::mix(sum ^ u64::from(byte)));
    format!("{sum:016X}")
}
