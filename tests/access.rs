//! Nobody reads through informerd what they may not read: the same requests by the same users to a real kube-apiserver
//! with RBAC and through a delegated listener, and what becomes of open watches when rights go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "judge/cluster.rs"]
mod cluster;
#[path = "judge/process.rs"]
mod process;
mod support;

#[path = "access/audit.rs"]
mod audit;
#[path = "access/authorizers.rs"]
mod authorizers;
#[path = "access/certificates.rs"]
mod certificates;
#[path = "access/clock.rs"]
mod clock;
#[path = "access/crowd.rs"]
mod crowd;
#[path = "access/delays.rs"]
mod delays;
#[path = "access/faulty.rs"]
mod faulty;
#[path = "access/flood.rs"]
mod flood;
#[path = "access/forms.rs"]
mod forms;
#[path = "access/forwarding.rs"]
mod forwarding;
#[path = "access/grpc.rs"]
mod grpc;
#[path = "access/impersonation.rs"]
mod impersonation;
#[path = "access/look.rs"]
mod look;
#[path = "access/matrix.rs"]
mod matrix;
#[path = "access/reviews.rs"]
mod reviews;
#[path = "access/revocation.rs"]
mod revocation;
#[path = "access/shares.rs"]
mod shares;
#[path = "access/shown.rs"]
mod shown;
#[path = "access/smuggling.rs"]
mod smuggling;
#[path = "access/streams.rs"]
mod streams;
#[path = "access/typed.rs"]
mod typed;
#[path = "access/wire.rs"]
mod wire;
#[path = "access/world.rs"]
mod world;
