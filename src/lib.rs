//! informerd keeps one shared informer per Kubernetes resource and re-serves list and watch from it.
//!
//! Data flows one way: `upstream` feeds `cache`, `informer` shares caches between requests, `reads` decides how a
//! request is answered, `http` writes the answer in the apiserver's format, and `passthrough` forwards everything else.
//! ARCHITECTURE.md describes the design; `tests/rules/layering.rs` enforces the import rules.
//!
//! The product is the binary. Modules are public only because tests, benchmarks and fuzz targets need them. They are
//! not a stable API for other crates.

mod admin;
pub mod app;
pub mod args;
pub mod auth;
mod authority;
pub mod cache;
pub mod codec;
pub mod config;
pub mod grpc;
pub mod http;
pub mod informer;
mod memory;
pub mod meta;
pub mod packing;
mod passthrough;
pub mod reads;
pub mod selector;
pub mod snapshots;
pub mod telemetry;
pub mod upstream;
mod workqueue;

pub use informerd_lifecycle as lifecycle;

/// As in the program, for the tests that count what is allocated.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
