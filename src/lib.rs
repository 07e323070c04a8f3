//! informerd keeps one shared informer per Kubernetes resource and re-serves list and watch from it.
//!
//! Data flows one way: `upstream` feeds `cache`, `informer` shares caches between requests, `reads` decides how a
//! request is answered, `http` writes the answer in the apiserver's format, and `passthrough` forwards everything else.
//! ARCHITECTURE.md describes the design; `tests/rules/layering.rs` enforces the import rules.
//!
//! The product is the binary. Modules are public only because tests, benchmarks and fuzz targets need them. They are
//! not a stable API for other crates.

// The compiler proves that the futures of gRPC are `Send` through all that they hold, down to TLS.
#![recursion_limit = "256"]

mod admin;
pub mod app;
pub mod args;
pub mod auth;
pub mod cache;
pub mod config;
pub mod grpc;
pub mod http;
pub mod informer;
mod passthrough;
pub mod reads;
pub mod snapshots;
pub mod upstream;

pub use informerd_apiserver as apiserver;
use informerd_authority as authority;
pub use informerd_codec as codec;
pub use informerd_lifecycle as lifecycle;
use informerd_memory as memory;
pub use informerd_meta as meta;
pub use informerd_packing as packing;
pub use informerd_selector as selector;
pub use informerd_telemetry as telemetry;
use informerd_workqueue as workqueue;

/// As in the program, for the tests that count what is allocated.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
