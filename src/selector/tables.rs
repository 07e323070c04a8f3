//! Which fields the types of the kube-apiserver let a selector name, and what the others are told.
//!
//! Values are compared as the apiserver's internal objects hold them; the tables say where the served form has them,
//! and what an omitted zero value stands for.

use std::sync::Arc;

use crate::meta::{FieldLabel, FieldTable, FieldValue, Gvr, Origin, Resource, strconv};

use super::compiled::Source;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// What a field label of a request stands for.
pub(super) enum Meaning {
    Field(Source),
    /// A label that the type accepts and never gives a value.
    AlwaysEmpty,
}

/// A built-in type with a field conversion of its own. All others know name and namespace only.
struct Conversion {
    group: &'static str,
    resource: &'static str,
    /// Whether `metadata.namespace` is supported; some namespaced types forgot it.
    namespace: bool,
    fields: &'static [Field],
    /// The field the apiserver keeps a trigger for.
    trigger: Option<&'static str>,
}

struct Field {
    label: &'static str,
    path: &'static str,
    fallback: &'static str,
    missing: &'static str,
}

/// A field whose label is its path.
const fn plain(label: &'static str) -> Field {
    Field { label, path: label, fallback: "", missing: "" }
}

/// A field whose zero value is left out of the JSON.
const fn zero(label: &'static str, path: &'static str, missing: &'static str) -> Field {
    Field { label, path, fallback: "", missing }
}

const fn with_fallback(label: &'static str, path: &'static str, fallback: &'static str) -> Field {
    Field { label, path, fallback, missing: "" }
}

const CONVERSIONS: &[Conversion] = &[
    Conversion {
        group: "",
        resource: "pods",
        namespace: true,
        fields: &[
            plain("spec.nodeName"),
            plain("spec.restartPolicy"),
            plain("spec.schedulerName"),
            with_fallback("spec.serviceAccountName", "spec.serviceAccountName", "spec.serviceAccount"),
            zero("spec.hostNetwork", "spec.hostNetwork", "false"),
            plain("status.phase"),
            with_fallback("status.podIP", "status.podIPs.0.ip", "status.podIP"),
            plain("status.nominatedNodeName"),
        ],
        trigger: Some("spec.nodeName"),
    },
    Conversion {
        group: "",
        resource: "nodes",
        namespace: false,
        fields: &[zero("spec.unschedulable", "spec.unschedulable", "false")],
        trigger: None,
    },
    Conversion {
        group: "",
        resource: "replicationcontrollers",
        namespace: true,
        fields: &[zero("status.replicas", "status.replicas", "0")],
        trigger: None,
    },
    Conversion { group: "", resource: "namespaces", namespace: false, fields: &[plain("status.phase")], trigger: None },
    Conversion { group: "", resource: "secrets", namespace: true, fields: &[plain("type")], trigger: None },
    Conversion {
        group: "",
        resource: "services",
        namespace: true,
        fields: &[plain("spec.clusterIP"), plain("spec.type")],
        trigger: None,
    },
    Conversion {
        group: "",
        resource: "events",
        namespace: true,
        fields: &[
            plain("involvedObject.kind"),
            plain("involvedObject.namespace"),
            plain("involvedObject.name"),
            plain("involvedObject.uid"),
            plain("involvedObject.apiVersion"),
            plain("involvedObject.resourceVersion"),
            plain("involvedObject.fieldPath"),
            plain("reason"),
            plain("reportingComponent"),
            with_fallback("source", "source.component", "reportingComponent"),
            plain("type"),
        ],
        trigger: None,
    },
    Conversion {
        group: "events.k8s.io",
        resource: "events",
        namespace: true,
        fields: &[
            plain("regarding.kind"),
            plain("regarding.namespace"),
            plain("regarding.name"),
            plain("regarding.uid"),
            plain("regarding.apiVersion"),
            plain("regarding.resourceVersion"),
            plain("regarding.fieldPath"),
            plain("reason"),
            plain("reportingController"),
            plain("type"),
        ],
        trigger: None,
    },
    Conversion {
        group: "batch",
        resource: "jobs",
        namespace: true,
        fields: &[zero("status.successful", "status.succeeded", "0")],
        trigger: None,
    },
    Conversion {
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        namespace: false,
        fields: &[plain("spec.signerName")],
        trigger: None,
    },
    Conversion {
        group: "certificates.k8s.io",
        resource: "clustertrustbundles",
        namespace: false,
        fields: &[plain("spec.signerName")],
        trigger: None,
    },
    Conversion {
        group: "certificates.k8s.io",
        resource: "podcertificaterequests",
        namespace: false,
        fields: &[plain("spec.signerName"), plain("spec.podName"), plain("spec.nodeName")],
        trigger: None,
    },
    Conversion {
        group: "resource.k8s.io",
        resource: "resourceslices",
        namespace: false,
        fields: &[plain("spec.nodeName"), plain("spec.driver")],
        trigger: Some("spec.nodeName"),
    },
];

/// The field table of a resource: what an object is to be parsed with, so that selectors on it can be evaluated.
pub fn field_table(resource: &Resource) -> FieldTable {
    match &resource.origin {
        Origin::BuiltIn => conversion(&resource.gvr).map(Conversion::table).unwrap_or_default(),
        Origin::Custom { selectable, .. } => FieldTable {
            labels: selectable
                .iter()
                .map(|label| FieldLabel {
                    label: label.clone(),
                    value: FieldValue { path: path(label), fallback: None, missing: "" },
                })
                .collect(),
            trigger: None,
        },
        Origin::Unknown => FieldTable::default(),
    }
}

/// What a field label stands for.
///
/// # Errors
/// The apiserver's message, if the type does not support the label.
pub(super) fn meaning(resource: &Resource, table: &FieldTable, label: &str) -> Result<Meaning, String> {
    let conversion = match resource.origin {
        Origin::BuiltIn => conversion(&resource.gvr),
        Origin::Custom { .. } | Origin::Unknown => None,
    };
    if label == NAME {
        return Ok(Meaning::Field(Source::Name));
    }
    if label == NAMESPACE {
        let supported = match (&resource.origin, conversion) {
            (Origin::BuiltIn, Some(conversion)) => conversion.namespace,
            (Origin::BuiltIn, None) => true,
            (Origin::Custom { .. } | Origin::Unknown, _) => resource.namespaced,
        };
        if supported {
            let meaning = if resource.namespaced { Meaning::Field(Source::Namespace) } else { Meaning::AlwaysEmpty };
            return Ok(meaning);
        }
    }
    let label = match (&*resource.gvr.group, &*resource.gvr.resource, label) {
        ("", "pods", "status.podIPs") if conversion.is_some() => return Ok(Meaning::AlwaysEmpty),
        ("", "pods", "spec.host") if conversion.is_some() => "spec.nodeName",
        (_, _, label) => label,
    };
    match table.index_of(label) {
        Some(index) => Ok(Meaning::Field(Source::Field(index))),
        None => Err(unsupported(resource, conversion.is_some(), label)),
    }
}

fn unsupported(resource: &Resource, own_conversion: bool, label: &str) -> String {
    let quoted = strconv::quote(label.as_bytes());
    match (&resource.origin, &*resource.gvr.group, &*resource.gvr.resource) {
        (Origin::BuiltIn, "batch", "jobs") => format!("field label {quoted} not supported for Job"),
        (Origin::BuiltIn, "resource.k8s.io", "resourceslices") => {
            format!("field label not supported for {}, Kind=ResourceSlice: {label}", resource.gvr.api_version())
        }
        (Origin::BuiltIn, ..) if !own_conversion => {
            format!("{quoted} is not a known field selector: only \"{NAME}\", \"{NAMESPACE}\"")
        }
        _ => format!("field label not supported: {label}"),
    }
}

fn conversion(gvr: &Gvr) -> Option<&'static Conversion> {
    CONVERSIONS.iter().find(|conversion| *conversion.group == *gvr.group && *conversion.resource == *gvr.resource)
}

fn path(dotted: &str) -> Arc<[Arc<str>]> {
    dotted.split('.').map(Arc::from).collect()
}

// === impl Conversion ===

impl Conversion {
    fn table(&self) -> FieldTable {
        let labels = self.fields.iter().map(|field| FieldLabel {
            label: field.label.into(),
            value: FieldValue {
                path: path(field.path),
                fallback: (!field.fallback.is_empty()).then(|| path(field.fallback)),
                missing: field.missing,
            },
        });
        FieldTable {
            labels: labels.collect(),
            trigger: self.trigger.and_then(|trigger| self.fields.iter().position(|field| field.label == trigger)),
        }
    }
}
