//! Changes pods so that their containers read through informerd: through a sidecar that is added to the pod, through the
//! agent of their node, or through the tier. Only `informerd inject` does I/O: it reads manifests and prints them.
//!
//! The webhook and `informerd inject` both use [`inject`]. A pod that cannot be changed safely stays as it is, with a
//! reason: a pod without informerd works, and a broken one does not.

mod command;
mod containers;
mod document;
mod edit;
mod lead;
mod metrics;
mod pod;
mod review;
mod sidecar;
mod wanted;

#[cfg(test)]
mod properties_tests;
#[cfg(test)]
mod tests;

pub use command::rewrite_files;
pub use metrics::{InjectionMetrics, Result as Counted};
pub use pod::{can_change, inject};
pub use review::{Answer, Review};
pub use sidecar::CONFIG_FILE;
pub(crate) use sidecar::Sidecar;
pub use wanted::{Meta, Origin, Wanted, wanted};

/// The label of a namespace or a pod: a [`Mode`], or `disabled`.
pub const INJECT: &str = "informerd.io/inject";
/// The annotation of a pod that names the containers to change, separated by commas.
pub const CONTAINERS: &str = "informerd.io/inject-containers";
/// The annotation of a pod with the configuration of its sidecar.
pub const SIDECAR_CONFIG: &str = "informerd.io/sidecar-config";
/// The annotation of a pod with the memory of its sidecar.
pub const SIDECAR_MEMORY: &str = "informerd.io/sidecar-memory";
/// The annotation that a changed pod gets: the [`Mode`].
pub const INJECTED: &str = "informerd.io/injected";

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
pub type Check = fn(&str, &[(String, String)]) -> Result<(), String>;

/// Everything that a change depends on besides the pod.
#[derive(Clone, Debug)]
pub struct Injector {
    pub config: InjectionConfig,
    sidecar: Sidecar,
    check: Check,
}

// === impl Injector ===

impl Injector {
    /// With the sidecar of the manifests that this program was built with.
    ///
    /// # Errors
    /// They are no sidecar.
    pub fn new(config: InjectionConfig, check: Check) -> Result<Self, String> {
        let sidecar = Sidecar::built_in().map_err(|error| format!("the built-in sidecar: {error}"))?;
        Ok(Self { config, sidecar, check })
    }

    /// Whether a sidecar would start with the configuration that a pod has for it. This can take some time.
    ///
    /// # Errors
    /// The mistakes in it.
    pub fn check(&self, wanted: &Wanted) -> Result<(), String> {
        let Some(config) = &wanted.config else { return Ok(()) };
        let mistakes = |mistakes| format!("the annotation {SIDECAR_CONFIG}: {mistakes}");
        (self.check)(config, &self.sidecar.variables()).map_err(mistakes)
    }
}

// === impl Mode ===

impl Mode {
    /// All modes, in the order in which they are named.
    pub const ALL: [Self; 3] = [Self::Sidecar, Self::NodeAgent, Self::Tier];

    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::NodeAgent => "node-agent",
            Self::Tier => "tier",
        }
    }

    /// The ConfigMap with the CAs to trust, in the namespaces of the clients, that a pod of this mode mounts. The names
    /// are those in the manifests and in the chart. A namespace may have both.
    pub fn config_map(self) -> Option<&'static str> {
        match self {
            Self::Sidecar => None,
            Self::NodeAgent => Some("informerd-node-ca"),
            Self::Tier => Some("informerd-ca"),
        }
    }

    /// The mode of this name.
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}

// === impl InjectionConfig ===

impl InjectionConfig {
    /// Whether the pods of this namespace are never changed.
    pub fn excludes(&self, namespace: &str) -> bool {
        namespace == "kube-system" || self.excluded.iter().any(|excluded| excluded == namespace)
    }
}
