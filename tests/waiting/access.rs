//! Nobody reads through informerd what they may not read: the same requests by the same users to a real kube-apiserver
//! with RBAC and through a delegated listener, and what becomes of open watches when rights go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod aggregated;
mod audit;
mod authorizers;
mod away;
mod certificates;
mod clock;
mod crowd;
mod delays;
mod faulty;
mod flood;
mod forwarding;
mod grpc;
mod impersonation;
mod look;
mod reviews;
mod revocation;
mod rights;
mod shares;
mod shown;
mod smuggling;
mod streams;
mod typed;
mod unions;
mod wire;
mod world;
