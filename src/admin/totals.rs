//! Totals of the whole process, for the status page and its history.

use informerd_status::{Spared, Traffic};
use serde::Serialize;

use crate::telemetry::histogram::Distribution;

/// Counters since the start and gauges of the current state, for the whole process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Totals {
    /// The apiserver's address.
    pub server: String,
    /// The load that the apiserver was spared.
    pub spared: Spared,
    pub traffic: Traffic,
    pub plans: Plans,
    /// From the receipt of an event to its way out to a client.
    #[serde(skip)]
    pub lag: Distribution,
    /// Reads answered from a cache.
    pub served: u64,
    /// Our own requests to the apiserver: lists, watches, probes, reviews and others.
    pub own: u64,
    /// Requests forwarded to the apiserver.
    pub forwarded: u64,
    /// Requests that informerd answered with a Status of its own.
    pub refused: u64,
    /// Client connections that are open now.
    pub connections: u64,
    /// Client watches that are open now.
    pub watches: u64,
    pub upstream_connections: u64,
    pub upstream_in_flight: u64,
    /// Failed attempts to connect to the apiserver.
    pub upstream_connect_errors: u64,
    /// The memory that the process may use, if that is known.
    pub memory_limit_bytes: Option<u64>,
}

/// Requests since the start by how they were answered, watches, writes and gRPC calls among them. The names are those of
/// the label `plan` of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Plans {
    pub serve: u64,
    pub wait: u64,
    pub old: u64,
    pub forward: u64,
    pub refuse: u64,
}
