//! What the room may be told.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of the delegated listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfig {
    /// Where the CA of client certificates comes from. `None`: clients are not asked for certificates.
    pub client_ca: Option<ClientCaSource>,
    /// Audiences a token must be for, one of them; empty: the apiserver's own.
    pub audiences: Vec<String>,
    /// A token must be bound to a pod on this node (KEP-4193).
    pub node: Option<String>,
    /// What becomes of requests without credentials.
    pub anonymous: Anonymous,
    /// How long an accepted or refused token or certificate is taken for what it was. Default 10 s.
    pub token_ttl: Duration,
    /// How long an access that RBAC has allowed stays allowed without being asked again. Default 5 min.
    pub allow_ttl: Duration,
    /// How long a denied access stays denied. Default 10 s.
    pub deny_ttl: Duration,
    /// Rights that the open streams of one user may rest on. Default 1024.
    pub max_user_rights: usize,
    /// Reviews under way at once; more wait. Default 32.
    pub max_reviews: usize,
    /// Requests that may wait for a review of their own; one more is told that there is none. Default 4096.
    pub max_waiting: usize,
    /// For a review, the wait for its turn included. Default 10 s.
    pub review_timeout: Duration,
}

/// Where the CA of client certificates is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCaSource {
    /// PEM, read again when it changes.
    File(PathBuf),
    /// `client-ca-file` of the ConfigMap `kube-system/extension-apiserver-authentication`, watched.
    Cluster,
}

/// What becomes of requests that carry no credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Anonymous {
    /// 401.
    #[default]
    Refuse,
    /// The apiserver decides.
    Forward,
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
            max_user_rights: 1024,
            max_reviews: 32,
            max_waiting: 4096,
            review_timeout: Duration::from_secs(10),
        }
    }
}
