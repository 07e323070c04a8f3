//! The typed streams of `informerd.v1`, with a client generated from the same API, against the simulated server and the
//! real kube-apiserver.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod age;
pub(crate) mod fixtures;
mod grpcurl;
mod queue;
mod reads;
pub(crate) mod real;
mod real_protobuf;
mod real_queue;
mod restarts;
mod services;
mod syncs;
pub(crate) mod told;
mod watches;
