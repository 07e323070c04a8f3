//! Annotations that PartialObjectMetadata does not show.
//!
//! The apiserver creates it from the internal version of an object. Some fields of the internal version do not exist
//! in a served version. There, annotations hold them, and the conversion between the two versions reads and writes
//! these annotations. So the internal version does not have the annotations. Only the types below have such fields.

const DEPLOYMENT: &[&str] = &["deprecated.deployment.rollback.to"];
const DAEMON_SET: &[&str] = &["deprecated.daemonset.template.generation"];
const AUTOSCALER: &[&str] = &[
    "autoscaling.alpha.kubernetes.io/behavior",
    "autoscaling.alpha.kubernetes.io/conditions",
    "autoscaling.alpha.kubernetes.io/current-metrics",
    "autoscaling.alpha.kubernetes.io/metrics",
];

/// Returns the annotations of a type that are not shown. `autoscaling/v2` has every field of the internal version.
pub(super) fn unshown(api_version: &str, kind: &str) -> &'static [&'static str] {
    match (api_version, kind) {
        ("apps/v1", "Deployment") => DEPLOYMENT,
        ("apps/v1", "DaemonSet") => DAEMON_SET,
        ("autoscaling/v1", "HorizontalPodAutoscaler") => AUTOSCALER,
        _ => &[],
    }
}
