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

pub use apiserver::Apiserver;
pub use caches::{CacheInfo, ClientInfo, ForwardInfo, Introspect};
pub use config::Config;
pub use explain::{Explaining, Explanation};
pub use server::Admin;
#[cfg(feature = "demo")]
pub use spared::{Grouped, InUnits};
pub use spared::{Spared, Traffic};
pub use status::Totals;

#[cfg(test)]
mod tests;
