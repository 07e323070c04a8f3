//! informerd keeps one shared informer per Kubernetes resource and re-serves list and watch from it.
//!
//! Data flows one way: `upstream` feeds `cache`, `informer` shares caches between requests, `reads` decides how a
//! request is answered, `http` says it in the apiserver's words, and `passthrough` forwards everything else.
//! ARCHITECTURE.md tells the whole; `tests/rules/layering.rs` holds the imports to it.
//!
//! The product is the binary. Rooms are public where tests, benchmarks and fuzz targets need them; none of that is promised
//! to other crates.

mod admin;
pub mod app;
pub mod args;
pub mod auth;
mod authority;
pub mod cache;
mod client;
pub mod codec;
pub mod config;
pub mod grpc;
pub mod http;
pub mod informer;
pub mod lifecycle;
mod memory;
pub mod meta;
mod passthrough;
pub mod reads;
pub mod selector;
pub mod telemetry;
pub mod upstream;
mod workqueue;
