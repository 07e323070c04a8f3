//! One set of credentials, and the connections made with them.

use std::sync::Arc;

use http::Uri;
use http::uri::PathAndQuery;

use super::connect::Connector;
use super::health::Keeper;
use super::pool::Pool;
use super::source::{AuthService, Files, Fingerprint, Loaded};
use super::{Identity, UpstreamCertificates, UpstreamConfig};
use crate::upstream::error::{Cause, UpstreamError};
use crate::upstream::metrics::UpstreamMetrics;

/// One state of the configuration. It is only replaced as a whole; streams of an older one continue.
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) fingerprint: Fingerprint,
    /// The files that it was read from.
    pub(super) files: Files,
    pub(super) authority: Arc<str>,
    /// `https://host:port`, without a path.
    pub(super) base: Uri,
    /// The path of the server's URL without a trailing slash.
    pub(super) prefix: Box<str>,
    pub(super) auth: AuthService,
    pub(super) own: Arc<Pool>,
    pub(super) bare: Arc<Pool>,
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
        let number = last.map_or(0, |last| last.number + 1);
        let same = last.filter(|last| {
            last.fingerprint.connection == loaded.fingerprint.connection && !loaded.may_change_certificate
        });
        let (own, bare) = match same {
            Some(last) => (Arc::clone(&last.own), Arc::clone(&last.bare)),
            None => {
                let connector = |tls| Connector::new(&loaded.endpoint, tls, config, metrics);
                (
                    Arc::new(Pool::new(connector(loaded.own_tls)?, config, metrics, keeper)),
                    Arc::new(Pool::new(connector(loaded.bare_tls)?, config, metrics, keeper)),
                )
            }
        };
        Ok(Self {
            number,
            fingerprint: loaded.fingerprint,
            files: loaded.files,
            authority: loaded.endpoint.authority,
            base: loaded.endpoint.base,
            prefix: loaded.endpoint.prefix,
            auth: loaded.auth,
            own,
            bare,
            certificates: loaded.certificates,
        })
    }

    pub(super) fn pool(&self, identity: Identity) -> &Arc<Pool> {
        match identity {
            Identity::Own => &self.own,
            Identity::Bare => &self.bare,
        }
    }

    pub(super) fn uri(&self, asked: Option<&PathAndQuery>) -> Result<Uri, UpstreamError> {
        let asked = asked.map_or("/", PathAndQuery::as_str);
        let mut parts = self.base.clone().into_parts();
        let path = format!("{}{asked}", self.prefix);
        parts.path_and_query =
            Some(path.parse().map_err(|error: http::uri::InvalidUri| UpstreamError::Request(Cause::new(error)))?);
        Uri::from_parts(parts).map_err(|error| UpstreamError::Request(Cause::new(error)))
    }
}
