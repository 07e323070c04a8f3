//! informerd keeps one shared informer per Kubernetes resource and re-serves list and watch from it.
//!
//! Data flows one way: `upstream` feeds `cache`, `informer` shares caches between requests, `reads` decides how a
//! request is answered, `http` says it in the apiserver's words, and `passthrough` forwards everything else.
//! ARCHITECTURE.md tells the whole; `tests/layering.rs` holds the imports to it.

pub mod admin;
pub mod app;
pub mod args;
pub mod auth;
pub mod authority;
pub mod cache;
pub mod client;
pub mod codec;
pub mod config;
pub mod grpc;
pub mod http;
pub mod informer;
pub mod lifecycle;
pub mod memory;
pub mod meta;
pub mod passthrough;
pub mod reads;
pub mod selector;
pub mod telemetry;
pub mod upstream;
pub mod workqueue;
