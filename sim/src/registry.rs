//! The resources that the simulated server knows: built-in ones from a table, custom ones from
//! CustomResourceDefinitions.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::types::Gvr;

/// One served resource.
#[derive(Debug)]
pub(super) struct Kind {
    pub gvr: Gvr,
    /// `pods`, `deployments.apps`: the name in the store, the counters and the faults.
    pub id: Arc<str>,
    pub kind: Arc<str>,
    pub singular: String,
    pub short: Vec<String>,
    pub namespaced: bool,
    /// A custom resource: its keys are sorted, and its list items have their own kind.
    pub custom: bool,
    /// Served without a watch cache, as the apiserver serves events: the limit applies even at resourceVersion 0, and
    /// there are no regular bookmarks.
    pub uncached: bool,
    /// Field labels other than `metadata.name` and `metadata.namespace`.
    pub fields: Vec<Field>,
    /// Printer columns of a custom resource: name, type and path.
    pub columns: Vec<(String, String, String)>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub label: String,
    /// Member names from the root. A number is the index of an array element.
    pub path: String,
    pub missing: &'static str,
}

/// plural, kind, group, version, namespaced, short names
const BUILT_IN: &[(&str, &str, &str, &str, bool, &str)] = &[
    ("nodes", "Node", "", "v1", false, "no"),
    ("namespaces", "Namespace", "", "v1", false, "ns"),
    ("pods", "Pod", "", "v1", true, "po"),
    ("services", "Service", "", "v1", true, "svc"),
    ("configmaps", "ConfigMap", "", "v1", true, "cm"),
    ("secrets", "Secret", "", "v1", true, ""),
    ("serviceaccounts", "ServiceAccount", "", "v1", true, "sa"),
    ("events", "Event", "", "v1", true, "ev"),
    ("resourcequotas", "ResourceQuota", "", "v1", true, "quota"),
    ("limitranges", "LimitRange", "", "v1", true, "limits"),
    ("deployments", "Deployment", "apps", "v1", true, "deploy"),
    ("replicasets", "ReplicaSet", "apps", "v1", true, "rs"),
    ("daemonsets", "DaemonSet", "apps", "v1", true, "ds"),
    ("endpointslices", "EndpointSlice", "discovery.k8s.io", "v1", true, ""),
    ("leases", "Lease", "coordination.k8s.io", "v1", true, ""),
    ("customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io", "v1", false, "crd"),
    ("apiservices", "APIService", "apiregistration.k8s.io", "v1", false, ""),
];

/// resource, field label, path, the value that a missing value compares as
const FIELDS: &[(&str, &str, &str, &str)] = &[
    ("pods", "spec.nodeName", "spec.nodeName", ""),
    ("pods", "spec.restartPolicy", "spec.restartPolicy", "Always"),
    ("pods", "spec.schedulerName", "spec.schedulerName", "default-scheduler"),
    ("pods", "spec.serviceAccountName", "spec.serviceAccountName", ""),
    ("pods", "spec.hostNetwork", "spec.hostNetwork", "false"),
    ("pods", "status.phase", "status.phase", ""),
    ("pods", "status.podIP", "status.podIPs.0.ip", ""),
    ("pods", "status.nominatedNodeName", "status.nominatedNodeName", ""),
    ("nodes", "spec.unschedulable", "spec.unschedulable", "false"),
    ("namespaces", "status.phase", "status.phase", ""),
    ("secrets", "type", "type", "Opaque"),
    ("services", "spec.clusterIP", "spec.clusterIP", ""),
    ("services", "spec.type", "spec.type", "ClusterIP"),
    ("events", "involvedObject.kind", "involvedObject.kind", ""),
    ("events", "involvedObject.namespace", "involvedObject.namespace", ""),
    ("events", "involvedObject.name", "involvedObject.name", ""),
    ("events", "involvedObject.uid", "involvedObject.uid", ""),
    ("events", "involvedObject.apiVersion", "involvedObject.apiVersion", ""),
    ("events", "involvedObject.resourceVersion", "involvedObject.resourceVersion", ""),
    ("events", "involvedObject.fieldPath", "involvedObject.fieldPath", ""),
    ("events", "reason", "reason", ""),
    ("events", "reportingComponent", "reportingComponent", ""),
    ("events", "source", "source.component", ""),
    ("events", "type", "type", ""),
];

// === impl Kind ===

impl Kind {
    /// The kinds that every server starts with, including the definition of custom resources.
    pub(super) fn built_in() -> Vec<Self> {
        let kind = |&(plural, kind, group, version, namespaced, short): &(&str, &str, &str, &str, bool, &str)| {
            let gvr = Gvr::new(group, version, plural);
            let fields = FIELDS.iter().filter(|(resource, ..)| *resource == plural);
            let field = |&(_, label, path, missing): &(&str, &str, &str, &'static str)| Field {
                label: label.into(),
                path: path.into(),
                missing,
            };
            Self {
                id: gvr.group_resource().into(),
                gvr,
                kind: kind.into(),
                singular: kind.to_lowercase(),
                short: short.split_terminator(',').map(Into::into).collect(),
                namespaced,
                custom: false,
                uncached: plural == "events",
                fields: fields.map(field).collect(),
                columns: Vec::new(),
            }
        };
        BUILT_IN.iter().map(kind).collect()
    }

    /// The resource that a CustomResourceDefinition describes, in its first served version. Returns `None` if the
    /// definition lacks a required member.
    pub(super) fn from_definition(definition: &Value) -> Option<Self> {
        let spec = definition.get("spec")?;
        let names = spec.get("names")?;
        let versions = spec.get("versions")?.as_array()?;
        let version = versions.iter().find(|version| version["served"].as_bool().unwrap_or(true))?;
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let gvr = Gvr::new(spec["group"].as_str()?, version["name"].as_str()?, names["plural"].as_str()?);
        let kind = names["kind"].as_str()?;
        let path = |value: &Value| value["jsonPath"].as_str().map(|path| path.trim_start_matches('.').to_owned());
        let selectable = version["selectableFields"].as_array().map_or(&[][..], Vec::as_slice);
        let columns = version["additionalPrinterColumns"].as_array().map_or(&[][..], Vec::as_slice);
        Some(Self {
            id: gvr.group_resource().into(),
            gvr,
            kind: kind.into(),
            singular: text(&names["singular"]).unwrap_or_else(|| kind.to_lowercase()),
            short: names["shortNames"].as_array().map(|all| all.iter().filter_map(text).collect()).unwrap_or_default(),
            namespaced: spec["scope"].as_str() != Some("Cluster"),
            custom: true,
            uncached: false,
            fields: selectable
                .iter()
                .filter_map(path)
                .map(|path| Field { label: path.clone(), path, missing: "" })
                .collect(),
            columns: columns
                .iter()
                .filter_map(|column| Some((text(&column["name"])?, text(&column["type"])?, path(column)?)))
                .collect(),
        })
    }

    pub(super) fn api_version(&self) -> String {
        self.gvr.api_version()
    }

    /// The start of a built-in object. List items do not have it.
    pub(super) fn head(&self) -> String {
        format!(r#"{{"kind":"{}","apiVersion":"{}","#, self.kind, self.api_version())
    }

    /// Whether a fault or a counter means this resource. The name may be plain or include the group.
    pub(super) fn is(&self, name: &str) -> bool {
        *self.id == *name || *self.gvr.resource == *name
    }
}

/// The definition of `widgets.demo.informerd.io`. Every server has it.
pub(super) fn widgets_definition() -> Value {
    json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "widgets.demo.informerd.io"},
        "spec": {
            "group": "demo.informerd.io", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [
                    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Ready", "type": "boolean", "jsonPath": ".status.ready"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }],
        },
        "status": {
            "acceptedNames": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
                {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted"},
            ],
            "storedVersions": ["v1"],
        },
    })
}
