//! Why kubeconfigs and credentials cannot be used.

/// A kubeconfig cannot be read, or says what kubectl would refuse too. The message is one line without secrets.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct KubeconfigError(pub(super) String);

/// Credentials cannot be read or used. The message is one line without secrets.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CredentialError(pub(super) String);
