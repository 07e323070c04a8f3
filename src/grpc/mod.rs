//! Reads as typed streams: the services of `informerd.v1`, health and reflection.
//!
//! The HTTP listeners pass requests with `application/grpc` to this module. gRPC calls are never forwarded to the
//! apiserver. A read that the caches cannot serve is refused with a reason; [`status`] maps each reason to a code.

mod access;
mod answer;
mod body;
mod cache;
mod calls;
mod codec;
mod conflate;
mod convert;
mod cost;
mod deadline;
mod feed;
mod health;
mod intake;
mod lasting;
mod list;
mod message;
mod message_body;
mod metrics;
mod objects;
mod opening;
pub mod pb;
mod queue;
mod reason;
mod render;
mod retiring;
mod room;
mod select;
mod server;
mod shared_events;
mod status;
mod sync;
mod terms;
#[cfg(test)]
mod testing;
mod token;
mod watch;

use std::pin::Pin;

pub use access::{CallInfo, Caller, UserObserver};
pub use cache::Introspect;
pub use metrics::GrpcMetrics;
pub use objects::Cluster;
pub use queue::{GroupStats, Groups, QueueConfig};
pub use retiring::Retiring;
pub use server::{Grpc, GrpcParts};
pub use token::TokenBase;

/// The response messages of a call, as a stream.
type Streamed<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, tonic::Status>> + Send>>;

#[cfg(test)]
mod calls_tests;
