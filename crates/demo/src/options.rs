//! What the command line says of the demo.

use super::outage::Plan;

/// The size of each cluster, its clients, and its outage.
#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: u32,
    pub pods: u32,
    pub namespaces: u32,
    /// Changes a second.
    pub churn: u32,
    pub seed: u64,
    /// Clients that watch.
    pub watchers: u32,
    pub outage: Option<Plan>,
}
