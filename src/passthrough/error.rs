//! Errors of forwarding.

/// A request that was not forwarded, or whose forwarding failed before the apiserver answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// The request has no `Authorization` header, and the daemon forwards nothing with its own credentials.
    #[error("informerd does not forward requests without credentials here: the request has no Authorization header")]
    NoCredentials,
    /// The request has no `Authorization` header, and the daemon forwards only reads with its own credentials.
    #[error(
        "informerd forwards only reads without credentials: the request has no Authorization header, and {0} is refused"
    )]
    NotLent(&'static str),
    /// The request has no `Authorization` header, and the daemon forwards no sessions in pods with its own credentials.
    #[error(
        "informerd refuses exec, attach and port-forward without credentials on TCP listeners: the request has no \
         Authorization header; lendSessions: true (--lend-sessions true) allows them"
    )]
    NoSessions,
    #[error("informerd cannot forward the request: {0}")]
    BadRequest(&'static str),
    #[error("informerd cannot forward the request: its headers are larger than the kube-apiserver takes")]
    LargeHead,
    /// The connection could not be established. Nothing was sent.
    #[error("informerd cannot reach the kube-apiserver at {authority}: {error}")]
    Unreachable { authority: String, error: String },
    /// The connection broke. The request may have been executed.
    #[error("informerd lost the connection to the kube-apiserver at {authority}: {error}")]
    Broken { authority: String, error: String },
    /// Too many requests are in flight. Nothing was sent.
    #[error("informerd has too many requests to the kube-apiserver at {authority} under way")]
    Busy { authority: String },
    /// There is no memory for an answer. Nothing was sent.
    #[error("informerd has no memory left to forward the request to the kube-apiserver at {authority}")]
    Memory { authority: String },
    #[error("informerd had no answer in time from the kube-apiserver at {authority}")]
    Timeout { authority: String },
}
