//! The whole daemon over real sockets: what it shares, starts, serves, forwards, refuses and lets go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod access_log;
mod away;
mod connections;
mod counted;
mod drain;
mod explained;
pub(crate) mod fixtures;
mod guards;
mod memory;
mod metrics;
mod namespaces;
mod on_demand;
mod passthrough;
mod scopes;
