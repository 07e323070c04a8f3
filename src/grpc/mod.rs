//! The reads as typed streams: the services of `informerd.v1`, health and reflection.
//!
//! The listeners are those of HTTP, which hands over what comes as `application/grpc`. Nothing is forwarded to the
//! apiserver from here: what the caches cannot answer is refused with a reason ([`status`] has the table).

mod access;
mod conflate;
mod convert;
mod deadline;
mod feed;
mod health;
mod list;
mod metrics;
mod objects;
pub mod pb;
mod render;
mod server;
mod status;
mod sync;
mod terms;
mod token;
mod watch;

pub use access::Caller;
pub use metrics::GrpcMetrics;
pub use objects::Cluster;
pub use server::{Grpc, GrpcParts};
