//! The admin side, for the operator: health, metrics, and the state of the caches. It has its own thread and port, so a
//! slow scrape never delays traffic, and a busy daemon still answers its probes.

mod assets;
mod caches;
mod config;
mod explain;
mod health;
mod outages;
mod past;
mod routes;
mod server;
mod status;
mod totals;

pub(crate) use caches::Introspect;
pub(crate) use config::Config;
pub(crate) use explain::Explaining;
pub(crate) use server::{Admin, AdminError};
pub(crate) use totals::{Plans, Totals};

#[cfg(test)]
mod tests;
