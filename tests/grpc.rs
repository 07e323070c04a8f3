//! The typed streams of `informerd.v1`, with a client generated from the same API, against the simulated server and the
//! real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "grpc/age.rs"]
mod age;
#[path = "grpc/cache.rs"]
mod cache;
#[path = "judge/cluster.rs"]
mod cluster;
#[path = "grpc/fixtures.rs"]
mod fixtures;
#[path = "grpc/grpcurl.rs"]
mod grpcurl;
#[path = "judge/process.rs"]
mod process;
#[path = "grpc/queue.rs"]
mod queue;
#[path = "grpc/reads.rs"]
mod reads;
#[path = "grpc/real.rs"]
mod real;
#[path = "grpc/real_protobuf.rs"]
mod real_protobuf;
#[path = "grpc/real_queue.rs"]
mod real_queue;
#[path = "grpc/real_restarts.rs"]
mod real_restarts;
#[path = "grpc/restarts.rs"]
mod restarts;
#[path = "grpc/services.rs"]
mod services;
mod support;
#[path = "grpc/syncs.rs"]
mod syncs;
#[path = "grpc/tokens.rs"]
mod tokens;
#[path = "grpc/told.rs"]
mod told;
#[path = "grpc/transport.rs"]
mod transport;
#[path = "grpc/watches.rs"]
mod watches;
