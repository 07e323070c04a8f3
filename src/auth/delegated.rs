//! What decides on delegated listeners: the cluster authenticates and authorizes their clients.

use std::sync::Arc;

use tokio::sync::watch;

use super::authenticator::Authenticator;
use super::authorizer::Authorizer;
use super::client_ca::ClientCa;
use super::config::{Anonymous, AuthConfig, StartError};
use super::metrics::AuthMetrics;
use super::outage::Outage;
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
    pub(super) outage: Arc<Outage>,
    pub(super) metrics: Arc<AuthMetrics>,
    pub(super) anonymous: Anonymous,
    /// A token must belong to a node. So it is reviewed here even where the apiserver would review it later.
    pub(super) bound_to_node: bool,
}

// === impl Delegated ===

impl Delegated {
    /// Starts the watches that report changes of rights. `others` and the errors are those of [`super::Access::delegated`].
    pub(super) fn start(
        config: &AuthConfig,
        upstream: &Upstream,
        others: watch::Receiver<bool>,
        metrics: Arc<AuthMetrics>,
        fatal: &Fatal,
    ) -> Result<Self, StartError> {
        // A token that is kept must not outlive the memory of what it was bound to.
        let at_least = config.max_away_age.saturating_add(config.token_ttl);
        let (generations, revoked) = (Arc::<RbacGenerations>::default(), Arc::new(Revoked::for_at_least(at_least)));
        let start = |source| ClientCa::start(source, upstream, fatal);
        let client_ca = config.client_ca.as_ref().map(start).transpose()?;
        let outage = Arc::new(Outage::new(upstream.clone(), config, others, Arc::clone(&metrics)));
        let reviews = Arc::new(Reviews::new(Arc::clone(&outage), config, Arc::clone(&metrics)));
        let watches = || PodWatches::new(upstream.clone(), Arc::clone(&revoked), Arc::clone(&generations));
        let pod_watches = config.node.is_none().then(watches).map(Arc::new);
        let standing = Standing::new(Arc::clone(&reviews), Arc::clone(&revoked), pod_watches);
        let authenticator =
            Authenticator::new(config, Arc::clone(&reviews), client_ca, Arc::clone(&revoked), standing)?;
        let authorizer = Authorizer::new(config, reviews, Arc::clone(&generations), Arc::clone(&metrics));
        revocation::start(config, upstream, &generations, &revoked, &outage, &metrics, fatal);
        let (anonymous, bound_to_node) = (config.anonymous, config.node.is_some());
        Ok(Self { authenticator, authorizer, generations, revoked, outage, metrics, anonymous, bound_to_node })
    }
}

#[cfg(test)]
#[path = "delegated_tests.rs"]
mod tests;
