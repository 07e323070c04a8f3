//! What each fuzz target checks. `tests/rules/fuzz.rs` runs the same functions on generated input.

pub mod config;
pub mod continue_tokens;
pub mod credentials;
pub mod durations;
pub mod gather;
pub mod json_item;
pub mod json_list;
pub mod json_watch;
pub mod kubeconfig;
pub mod metadata;
pub mod pages;
pub mod protobuf_item;
pub mod protobuf_list;
pub mod protobuf_watch;
pub mod prune;
pub mod requests;
pub mod resume_tokens;
pub mod selectors;
pub mod snapshots;
pub mod tables;

mod columns;
mod faults;
mod input;
mod json;
mod messages;
mod pods;
mod runtime;

/// Counts what is allocated, so that a bound on memory can be checked.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
