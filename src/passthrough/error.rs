//! Why a request did not come through.

/// A request that was not forwarded, or whose forwarding failed before the apiserver answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// No `Authorization` of its own, and the daemon lends its identity to nobody.
    #[error("informerd lends no identity, and the request carries no Authorization header")]
    NoCredentials,
    /// No `Authorization` of its own, and this is not what the daemon lends its identity for.
    #[error(
        "informerd lends its identity for reading only, and the request carries no Authorization header: {0} is refused"
    )]
    NotLent(&'static str),
    #[error("informerd cannot forward the request: {0}")]
    BadRequest(&'static str),
    /// The connection could not be made: nothing was sent.
    #[error("informerd cannot reach the kube-apiserver at {authority}: {error}")]
    Unreachable { authority: String, error: String },
    /// The connection broke: the request may have been carried out.
    #[error("informerd lost the connection to the kube-apiserver at {authority}: {error}")]
    Broken { authority: String, error: String },
    /// Too much is under way already: nothing was sent.
    #[error("informerd has too many requests to the kube-apiserver at {authority} under way")]
    Busy { authority: String },
    /// There is no memory for an answer: nothing was sent.
    #[error("informerd has no memory left to forward the request to the kube-apiserver at {authority}")]
    Memory { authority: String },
    #[error("informerd had no answer in time from the kube-apiserver at {authority}")]
    Timeout { authority: String },
}
