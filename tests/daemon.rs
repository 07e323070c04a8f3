//! The whole daemon over real sockets: what it shares, starts, serves, forwards, refuses and lets go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "daemon/access_log.rs"]
mod access_log;
#[path = "daemon/away.rs"]
mod away;
#[path = "judge/cluster.rs"]
mod cluster;
#[path = "daemon/connections.rs"]
mod connections;
#[path = "daemon/counted.rs"]
mod counted;
#[path = "daemon/definitions.rs"]
mod definitions;
#[path = "daemon/drain.rs"]
mod drain;
#[path = "daemon/explained.rs"]
mod explained;
#[path = "daemon/fixtures.rs"]
mod fixtures;
#[path = "daemon/guards.rs"]
mod guards;
#[path = "daemon/memory.rs"]
mod memory;
#[path = "daemon/metrics.rs"]
mod metrics;
#[path = "daemon/namespaces.rs"]
mod namespaces;
#[path = "daemon/on_demand.rs"]
mod on_demand;
#[path = "daemon/passthrough.rs"]
mod passthrough;
#[path = "judge/process.rs"]
mod process;
#[path = "daemon/scopes.rs"]
mod scopes;
#[path = "daemon/sharing.rs"]
mod sharing;
#[path = "daemon/slow.rs"]
mod slow;
mod support;
#[path = "daemon/upgrades.rs"]
mod upgrades;
