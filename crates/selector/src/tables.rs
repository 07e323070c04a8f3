//! The fields that selectors may use for the types of the kube-apiserver, and the errors for all other fields.
//!
//! Values are compared as the apiserver's internal objects hold them. The tables contain their positions in the
//! served versions, and the meaning of an omitted zero value. Field numbers come from the generated.proto of the
//! types. They are the same in all served versions.

use std::sync::Arc;

use informerd_meta::{FieldLabel, FieldTable, FieldValue, Gvr, Origin, Resource, strconv};

use super::compiled::Source;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// The meaning of a field label in a request.
pub(super) enum Meaning {
    Field(Source),
    /// A label that the type accepts but that never has a value.
    AlwaysEmpty,
}

/// A built-in type with its own field conversion. All other types support only name and namespace.
struct Conversion {
    group: &'static str,
    resource: &'static str,
    /// Whether `metadata.namespace` is supported. Some namespaced types lack it by mistake.
    namespace: bool,
    fields: &'static [Field],
    /// The trigger field: the apiserver indexes watchers by its value.
    trigger: Option<&'static str>,
}

struct Field {
    label: &'static str,
    at: Place,
    fallback: Place,
    missing: &'static str,
}

/// The position of a value: member names in JSON, field numbers in protobuf.
#[derive(Clone, Copy)]
struct Place(&'static str, &'static [u32]);

const NOWHERE: Place = Place("", &[]);

/// A field whose label is its path.
const fn plain(label: &'static str, numbers: &'static [u32]) -> Field {
    Field { label, at: Place(label, numbers), fallback: NOWHERE, missing: "" }
}

/// A field whose zero value is omitted from the JSON.
const fn zero(label: &'static str, at: Place, missing: &'static str) -> Field {
    Field { label, at, fallback: NOWHERE, missing }
}

const fn with_fallback(label: &'static str, at: Place, fallback: Place) -> Field {
    Field { label, at, fallback, missing: "" }
}

const fn with_namespace(group: &'static str, resource: &'static str, fields: &'static [Field]) -> Conversion {
    Conversion { group, resource, namespace: true, fields, trigger: None }
}

const fn without_namespace(group: &'static str, resource: &'static str, fields: &'static [Field]) -> Conversion {
    Conversion { group, resource, namespace: false, fields, trigger: None }
}

const CONVERSIONS: &[Conversion] = &[
    with_namespace(
        "",
        "pods",
        &[
            plain("spec.nodeName", &[2, 10]),
            plain("spec.restartPolicy", &[2, 3]),
            plain("spec.schedulerName", &[2, 19]),
            with_fallback(
                "spec.serviceAccountName",
                Place("spec.serviceAccountName", &[2, 8]),
                Place("spec.serviceAccount", &[2, 9]),
            ),
            zero("spec.hostNetwork", Place("spec.hostNetwork", &[2, 11]), "false"),
            plain("status.phase", &[3, 1]),
            with_fallback("status.podIP", Place("status.podIPs.0.ip", &[3, 12, 1]), Place("status.podIP", &[3, 6])),
            plain("status.nominatedNodeName", &[3, 11]),
        ],
    )
    .indexed_by("spec.nodeName"),
    without_namespace("", "nodes", &[zero("spec.unschedulable", Place("spec.unschedulable", &[2, 4]), "false")]),
    with_namespace("", "replicationcontrollers", &[zero("status.replicas", Place("status.replicas", &[3, 1]), "0")]),
    without_namespace("", "namespaces", &[plain("status.phase", &[3, 1])]),
    with_namespace("", "secrets", &[plain("type", &[3])]),
    with_namespace("", "services", &[plain("spec.clusterIP", &[2, 3]), plain("spec.type", &[2, 4])]),
    with_namespace(
        "",
        "events",
        &[
            plain("involvedObject.kind", &[2, 1]),
            plain("involvedObject.namespace", &[2, 2]),
            plain("involvedObject.name", &[2, 3]),
            plain("involvedObject.uid", &[2, 4]),
            plain("involvedObject.apiVersion", &[2, 5]),
            plain("involvedObject.resourceVersion", &[2, 6]),
            plain("involvedObject.fieldPath", &[2, 7]),
            plain("reason", &[3]),
            plain("reportingComponent", &[14]),
            with_fallback("source", Place("source.component", &[5, 1]), Place("reportingComponent", &[14])),
            plain("type", &[9]),
        ],
    ),
    with_namespace(
        "events.k8s.io",
        "events",
        &[
            plain("regarding.kind", &[8, 1]),
            plain("regarding.namespace", &[8, 2]),
            plain("regarding.name", &[8, 3]),
            plain("regarding.uid", &[8, 4]),
            plain("regarding.apiVersion", &[8, 5]),
            plain("regarding.resourceVersion", &[8, 6]),
            plain("regarding.fieldPath", &[8, 7]),
            plain("reason", &[7]),
            plain("reportingController", &[4]),
            plain("type", &[11]),
        ],
    ),
    with_namespace("batch", "jobs", &[zero("status.successful", Place("status.succeeded", &[3, 5]), "0")]),
    without_namespace("certificates.k8s.io", "certificatesigningrequests", &[plain("spec.signerName", &[2, 7])]),
    without_namespace("certificates.k8s.io", "clustertrustbundles", &[plain("spec.signerName", &[2, 1])]),
    without_namespace(
        "certificates.k8s.io",
        "podcertificaterequests",
        &[plain("spec.signerName", &[2, 1]), plain("spec.podName", &[2, 2]), plain("spec.nodeName", &[2, 6])],
    ),
    without_namespace(
        "resource.k8s.io",
        "resourceslices",
        &[plain("spec.nodeName", &[2, 3]), plain("spec.driver", &[2, 1])],
    )
    .indexed_by("spec.nodeName"),
];

/// The group and the resource of each built-in type that has selectable fields of its own.
pub fn types_with_fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    CONVERSIONS.iter().map(|conversion| (conversion.group, conversion.resource))
}

/// The field table of a resource. Parse its objects with this table so that selectors can be evaluated.
pub fn field_table(resource: &Resource) -> FieldTable {
    match &resource.origin {
        Origin::BuiltIn => conversion(&resource.gvr).map(Conversion::table).unwrap_or_default(),
        Origin::Custom { selectable, .. } => FieldTable {
            labels: selectable
                .iter()
                .map(|label| FieldLabel {
                    label: label.clone(),
                    value: FieldValue { path: path(label), ..FieldValue::default() },
                })
                .collect(),
            trigger: None,
        },
        Origin::Unknown => FieldTable::default(),
    }
}

/// The meaning of a field label.
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
    const fn indexed_by(self, label: &'static str) -> Self {
        Self { trigger: Some(label), ..self }
    }

    fn table(&self) -> FieldTable {
        let labels = self.fields.iter().map(|field| FieldLabel {
            label: field.label.into(),
            value: FieldValue {
                path: path(field.at.0),
                fallback: (!field.fallback.0.is_empty()).then(|| path(field.fallback.0)),
                numbers: field.at.1.into(),
                fallback_numbers: field.fallback.1.into(),
                missing: field.missing,
            },
        });
        FieldTable {
            labels: labels.collect(),
            trigger: self.trigger.and_then(|trigger| self.fields.iter().position(|field| field.label == trigger)),
        }
    }
}
