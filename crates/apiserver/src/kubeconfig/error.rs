//! Why kubeconfigs and credentials cannot be used.

/// A kubeconfig or the credentials in it cannot be read or used, or kubectl would refuse them too. The message is one line
/// without secrets.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct KubeconfigError(pub(super) String);
