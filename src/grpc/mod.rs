//! Reads as typed streams: the services of `informerd.v1`, health and reflection.
//!
//! The HTTP listeners pass requests with `application/grpc` to this module. gRPC calls are never forwarded to the
//! apiserver. A read that the caches cannot serve is refused with a reason; [`call::status`] maps each reason to a code.
//!
//! It has three parts, each of which imports only those before it: [`call`], [`messages`] and [`objects`].

mod cache;
mod call;
mod health;
mod messages;
mod metrics;
mod objects;
mod queue;
mod server;
#[cfg(test)]
mod testing;

use std::pin::Pin;

pub use cache::Introspect;
pub use call::{CallInfo, Caller, Retiring, UserObserver};
pub use informerd_api as pb;
pub use messages::TokenBase;
pub use metrics::GrpcMetrics;
pub use objects::Cluster;
pub use queue::{GroupStats, Groups, QueueConfig};
pub use server::{Grpc, GrpcParts};

/// The response messages of a call, as a stream.
type Streamed<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, tonic::Status>> + Send>>;
