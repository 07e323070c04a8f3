//! The HTTP client for the apiserver. It uses HTTP/2 over TLS with as many connections as the streams need, or HTTP/1.1
//! if the server has no HTTP/2. Requests carry our own credentials or none. Credentials are read again when they change
//! or are refused.

mod away;
mod body;
mod call;
mod cluster;
mod connect;
mod connection;
mod endpoint;
mod exchange;
mod generation;
mod gone;
mod handshake;
mod health;
mod io;
mod lease;
mod mend;
mod moved;
mod pool;
mod proxy;
mod replay;
mod request_body;
mod sender;
mod settings;
mod source;
mod spans;
mod upstream;
mod warnings;

#[cfg(test)]
mod tests;

pub use away::Away;
pub use body::UpstreamBody;
pub use call::{CallOptions, Identity};
pub use connection::ConnectionId;
pub(crate) use exchange::exchange;
pub use health::Health;
pub use moved::KUBE_SYSTEM;
pub use request_body::{ReqBody, empty, full};
pub use settings::{DEAD_AFTER, UpstreamConfig};
pub use source::{ConfigSource, UpstreamCertificates};
pub use upstream::{Upstream, VIA};
pub use warnings::Warnings;

pub use super::error::{Cause, UpstreamError};
pub use super::metrics::{RequestSeries, RequestVerb, UpstreamMetrics};
