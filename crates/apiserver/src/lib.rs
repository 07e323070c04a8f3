//! The kube-apiserver as a server: an HTTP client with the credentials of a kubeconfig or a pod, and what is read with it apart from
//! objects: documents of discovery, and watches of metadata.

pub mod chunks;
pub mod client;
pub mod discovery;
mod error;
mod families;
pub mod kubeconfig;
mod lenient;
pub mod metadata;
pub mod meter;
pub mod metrics;
#[cfg(any(test, feature = "testing"))]
pub mod raw_testing;
pub mod reader;
pub mod retries;
pub mod stamp;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use client::{CallOptions, Identity, Upstream};
pub use discovery::Discovery;
pub use error::{Cause, UpstreamError};
pub use metrics::{RequestVerb, UpstreamMetrics};
