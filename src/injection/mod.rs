//! Changes pods so that their containers read through informerd: through a sidecar that is added to the pod, through the
//! agent of their node, or through the tier. It does no I/O.
//!
//! The webhook and `informerd inject` both use [`inject`]. A pod that cannot be changed safely stays as it is, with a
//! reason: a pod without informerd works, and a broken one does not.

mod containers;
mod document;
mod edit;
mod lead;
mod metrics;
mod pod;
mod request;
mod review;
mod sidecar;
mod wanted;

#[cfg(test)]
mod properties_tests;
#[cfg(test)]
mod tests;

pub(crate) use document::rewrite;
pub(crate) use metrics::{InjectionMetrics, Result as Counted};
pub(crate) use pod::inject;
pub(crate) use review::{Answer, Review};
pub(crate) use sidecar::{CONFIG_FILE, Sidecar};
pub(crate) use wanted::{Meta, Wanted, wanted};

pub(crate) use request::Origin;

/// The label of a namespace or a pod: a [`Mode`], or `disabled`.
pub(crate) const INJECT: &str = "informerd.io/inject";
/// The annotation of a pod that names the containers to change, separated by commas.
pub(crate) const CONTAINERS: &str = "informerd.io/inject-containers";
/// The annotation of a pod with the configuration of its sidecar.
pub(crate) const SIDECAR_CONFIG: &str = "informerd.io/sidecar-config";
/// The annotation of a pod with the memory of its sidecar.
pub(crate) const SIDECAR_MEMORY: &str = "informerd.io/sidecar-memory";
/// The annotation that a changed pod gets: the [`Mode`].
pub(crate) const INJECTED: &str = "informerd.io/injected";

const DISABLED: &str = "disabled";
/// Where programs look for their in-cluster credentials.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The informerd that the containers of a pod use instead of the apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    Sidecar,
    NodeAgent,
    Tier,
}

/// Where informerd is found, and what sidecars are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectionConfig {
    /// The image of sidecars.
    pub image: String,
    /// The host name and port of the tier's Service.
    pub tier: (String, u16),
    /// The port of every node at which its agent is found.
    pub node_port: u16,
    /// Namespaces whose pods are never changed, besides `kube-system`.
    pub excluded: Vec<String>,
}

/// A check of a configuration, for a sidecar with these variables. The error has the mistakes.
pub(crate) type Check = fn(&str, &[(String, String)]) -> Result<(), String>;

/// Everything that a change depends on besides the pod.
#[derive(Clone, Debug)]
pub(crate) struct Injector {
    pub(crate) config: InjectionConfig,
    pub(crate) sidecar: Sidecar,
    pub(crate) check: Check,
}

// === impl Mode ===

impl Mode {
    pub(crate) const ALL: [Self; 3] = [Self::Sidecar, Self::NodeAgent, Self::Tier];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::NodeAgent => "node-agent",
            Self::Tier => "tier",
        }
    }

    /// The ConfigMap with the CAs to trust, in the namespaces of the clients, that a pod of this mode mounts. The names
    /// are those in the manifests and in the chart. A namespace may have both.
    pub(crate) fn config_map(self) -> Option<&'static str> {
        match self {
            Self::Sidecar => None,
            Self::NodeAgent => Some("informerd-node-ca"),
            Self::Tier => Some("informerd-ca"),
        }
    }

    pub(crate) fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

// === impl InjectionConfig ===

impl InjectionConfig {
    pub(crate) fn excludes(&self, namespace: &str) -> bool {
        namespace == "kube-system" || self.excluded.iter().any(|excluded| excluded == namespace)
    }
}
