//! What decides on delegated listeners: the cluster authenticates and authorizes their clients.

use std::sync::Arc;

use super::authenticator::Authenticator;
use super::authorizer::Authorizer;
use super::client_ca::ClientCa;
use super::config::{Anonymous, AuthConfig, StartError};
use super::metrics::AuthMetrics;
use super::pod_watches::PodWatches;
use super::rbac_generations::RbacGenerations;
use super::review::Reviews;
use super::revocation::{self, Revoked};
use super::standing::Standing;
use crate::apiserver::client::Upstream;
use crate::lifecycle::Fatal;

/// What the decisions of delegated listeners are made with.
pub(super) struct Delegated {
    pub(super) authenticator: Authenticator,
    pub(super) authorizer: Authorizer,
    pub(super) generations: Arc<RbacGenerations>,
    pub(super) revoked: Arc<Revoked>,
    pub(super) metrics: Arc<AuthMetrics>,
    pub(super) anonymous: Anonymous,
    /// A token must belong to a node. So it is reviewed here even where the apiserver would review it later.
    pub(super) bound_to_node: bool,
}

// === impl Delegated ===

impl Delegated {
    /// Starts the watches that report changes of rights. Its errors are those of [`super::Access::delegated`].
    pub(super) fn start(
        config: &AuthConfig,
        upstream: &Upstream,
        metrics: Arc<AuthMetrics>,
        fatal: &Fatal,
    ) -> Result<Self, StartError> {
        let (generations, revoked) = (Arc::<RbacGenerations>::default(), Arc::<Revoked>::default());
        let start = |source| ClientCa::start(source, upstream, fatal);
        let client_ca = config.client_ca.as_ref().map(start).transpose()?;
        let reviews = Arc::new(Reviews::new(upstream.clone(), config, Arc::clone(&metrics)));
        let watches = || PodWatches::new(upstream.clone(), Arc::clone(&revoked), Arc::clone(&generations));
        let pod_watches = config.node.is_none().then(watches).map(Arc::new);
        let standing = Standing::new(Arc::clone(&reviews), Arc::clone(&revoked), pod_watches);
        let authenticator =
            Authenticator::new(config, Arc::clone(&reviews), client_ca, Arc::clone(&revoked), standing)?;
        let authorizer = Authorizer::new(config, reviews, Arc::clone(&generations), Arc::clone(&metrics));
        revocation::start(config, upstream, &generations, &revoked, &metrics, fatal);
        let (anonymous, bound_to_node) = (config.anonymous, config.node.is_some());
        Ok(Self { authenticator, authorizer, generations, revoked, metrics, anonymous, bound_to_node })
    }
}

#[cfg(test)]
#[path = "delegated_tests.rs"]
mod tests;
