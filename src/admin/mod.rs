//! For the operator, on a thread and a port of its own: health, metrics, and a look into the caches. A slow scrape
//! never holds up traffic, and a busy daemon still answers its probes.

mod apiserver;
mod caches;
mod config;
mod explain;
mod health;
mod routes;
mod server;
mod spared;
mod status;

pub(crate) use apiserver::Apiserver;
pub(crate) use caches::{CacheInfo, ClientInfo, ForwardInfo, Introspect};
pub(crate) use config::Config;
pub(crate) use explain::{Explaining, Explanation};
pub(crate) use server::Admin;
#[cfg(feature = "demo")]
pub(crate) use spared::{Grouped, InUnits};
pub(crate) use spared::{Spared, Traffic};
pub(crate) use status::Totals;

#[cfg(test)]
mod tests;
