//! The service `Objects`: get, list, watch and sync.

mod calls;
#[cfg(test)]
mod calls_tests;
mod conflate;
mod feed;
mod list;
mod opening;
mod service;
mod sync;
mod terms;
mod watch;

pub use service::Cluster;
pub(super) use service::{Objects, Parts};
