//! The admin side, for the operator: health, metrics, and the state of the caches. It has its own thread and port, so a
//! slow scrape never delays traffic, and a busy daemon still answers its probes.

mod apiserver;
mod assets;
mod caches;
mod config;
mod explain;
mod health;
mod outages;
mod past;
mod routes;
mod server;
mod spared;
mod status;
mod totals;

pub(crate) use apiserver::Apiserver;
pub(crate) use caches::{CacheInfo, ClientInfo, ForwardInfo, Introspect, QueueInfo};
pub(crate) use config::Config;
pub(crate) use explain::{Explaining, Explanation};
pub(crate) use server::{Admin, AdminError};
#[cfg(feature = "demo")]
pub(crate) use spared::{Grouped, InUnits};
pub(crate) use spared::{Spared, Traffic};
pub(crate) use totals::{Plans, Totals};

#[cfg(test)]
mod tests;
