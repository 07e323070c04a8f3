//! Settings of authentication and authorization.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the delegated listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// The source of the CA for client certificates. `None`: clients are not asked for certificates.
    pub client_ca: Option<ClientCaSource>,
    /// A token must be for one of these audiences. Empty: the apiserver's own audiences.
    pub audiences: Vec<String>,
    /// If set, a token must be bound to a pod on this node (KEP-4193).
    pub node: Option<String>,
    /// How requests without credentials are handled.
    pub anonymous: Anonymous,
    /// How long the result for a token or certificate is cached, accepted or refused. Default 10 s.
    pub token_ttl: Duration,
    /// How long an access that RBAC has allowed stays allowed without a new review. Default 5 min.
    pub allow_ttl: Duration,
    /// How long a denied access stays denied. Default 10 s.
    pub deny_ttl: Duration,
    /// While the apiserver is away: how long an accepted token and an allowed access count without a new review. Zero: no longer than
    /// otherwise. Default 10 min.
    pub max_away_age: Duration,
    /// The most rights that the open streams of one user may depend on. Default 1024.
    pub max_user_rights: usize,
    /// The most open streams of one user. The wiring derives it from the memory.
    pub max_user_streams: usize,
    /// The most reviews in flight. Further ones wait. Default 32.
    pub max_reviews: usize,
    /// The most requests that may wait for a review of their own. Further ones get an error. Default 4096.
    pub max_waiting: usize,
    /// The timeout of a review, including the time that it waits for its turn. Default 10 s.
    pub review_timeout: Duration,
}

/// The source of the CA for client certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCaSource {
    /// A PEM file. It is read again when it changes.
    File(PathBuf),
    /// `client-ca-file` of the ConfigMap `kube-system/extension-apiserver-authentication`, which is watched.
    Cluster,
}

/// How requests without credentials are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Anonymous {
    /// 401.
    #[default]
    Refuse,
    /// The apiserver decides.
    Forward,
}

/// Why the settings cannot be put to use.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the system gives no random bytes")]
    Random(#[from] aws_lc_rs::error::Unspecified),
    #[error("CA of client certificates, {path}: {error}", path = path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("CA of client certificates, {path}: {error}", path = path.display())]
    ClientCa { path: PathBuf, error: String },
}

// === impl AuthConfig ===

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            client_ca: None,
            audiences: Vec::new(),
            node: None,
            anonymous: Anonymous::default(),
            token_ttl: Duration::from_secs(10),
            allow_ttl: Duration::from_secs(300),
            deny_ttl: Duration::from_secs(10),
            max_away_age: Duration::from_secs(600),
            max_user_rights: 1024,
            max_user_streams: usize::MAX,
            max_reviews: 32,
            max_waiting: 4096,
            review_timeout: Duration::from_secs(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_set_is_as_strict_as_the_apiserver() {
        let AuthConfig { client_ca, anonymous, token_ttl, allow_ttl, deny_ttl, .. } = AuthConfig::default();
        assert_eq!((client_ca, anonymous), (None, Anonymous::Refuse));
        assert_eq!([token_ttl, allow_ttl, deny_ttl], [10, 300, 10].map(Duration::from_secs));
    }
}
