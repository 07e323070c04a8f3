//! One set of credentials, and the connections made with them.

use std::sync::Arc;

use super::call::Identity;
use super::connect::Connector;
use super::endpoint::Endpoint;
use super::health::Keeper;
use super::pool::Pool;
use super::settings::UpstreamConfig;
use super::source::{Files, Fingerprint, Loaded, UpstreamCertificates};
use crate::error::UpstreamError;
use crate::kubeconfig::Credentials;
use crate::metrics::UpstreamMetrics;

/// One state of the configuration. It is only replaced as a whole; streams of an older one continue.
pub(super) struct Generation {
    pub(super) fingerprint: Fingerprint,
    /// The files that it was read from.
    pub(super) files: Files,
    pub(super) endpoint: Endpoint,
    pub(super) credentials: Credentials,
    /// In the order of [`Identity`].
    pools: [Arc<Pool>; 4],
    pub(super) certificates: UpstreamCertificates,
}

// === impl Generation ===

impl Generation {
    /// Builds a generation. It keeps the connections of `last` if they were made with the same settings.
    pub(super) fn build(
        loaded: Loaded,
        config: &UpstreamConfig,
        metrics: &Arc<UpstreamMetrics>,
        keeper: &Arc<Keeper>,
        last: Option<&Self>,
    ) -> Result<Self, UpstreamError> {
        let same = last.filter(|last| {
            last.fingerprint.connection == loaded.fingerprint.connection && !loaded.may_change_certificate
        });
        let pools = match same {
            Some(last) => last.pools.clone(),
            None => {
                let own = Connector::new(&loaded.endpoint, loaded.own_tls, config, metrics)?;
                let bare = Connector::new(&loaded.endpoint, loaded.bare_tls, config, metrics)?;
                let pool = |(connector, is_of_strangers)| Arc::new(Pool::new(connector, is_of_strangers, keeper));
                [(own, false), (bare.clone(), false), (bare.clone(), true), (bare, false)].map(pool)
            }
        };
        Ok(Self {
            fingerprint: loaded.fingerprint,
            files: loaded.files,
            endpoint: loaded.endpoint,
            credentials: loaded.credentials,
            pools,
            certificates: loaded.certificates,
        })
    }

    pub(super) fn pool(&self, identity: Identity) -> &Arc<Pool> {
        &self.pools[identity as usize]
    }
}
