//! Annotations that PartialObjectMetadata does not show.
//!
//! The apiserver makes it of the internal version of an object. Fields of that version that a served version lacks are
//! annotations of the served version, written and read by the conversion between the two, so the internal version does
//! not have them. Only the types below have such fields.

const DEPLOYMENT: &[&str] = &["deprecated.deployment.rollback.to"];
const DAEMON_SET: &[&str] = &["deprecated.daemonset.template.generation"];
const AUTOSCALER: &[&str] = &[
    "autoscaling.alpha.kubernetes.io/behavior",
    "autoscaling.alpha.kubernetes.io/conditions",
    "autoscaling.alpha.kubernetes.io/current-metrics",
    "autoscaling.alpha.kubernetes.io/metrics",
];

/// Returns the unshown fields of a type. `autoscaling/v2` has every field of the internal version.
pub(super) fn unshown(api_version: &str, kind: &str) -> &'static [&'static str] {
    match (api_version, kind) {
        ("apps/v1", "Deployment") => DEPLOYMENT,
        ("apps/v1", "DaemonSet") => DAEMON_SET,
        ("autoscaling/v1", "HorizontalPodAutoscaler") => AUTOSCALER,
        _ => &[],
    }
}
