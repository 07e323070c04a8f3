//! What each fuzz target checks. `tests/rules/fuzz.rs` runs the same functions on generated input.

pub(super) mod config;
pub(super) mod continue_tokens;
pub(super) mod credentials;
pub(super) mod durations;
pub(super) mod gather;
pub(super) mod json_item;
pub(super) mod json_list;
pub(super) mod json_watch;
pub(super) mod kubeconfig;
pub(super) mod metadata;
pub(super) mod pages;
pub(super) mod protobuf_item;
pub(super) mod protobuf_list;
pub(super) mod protobuf_watch;
pub(super) mod prune;
pub(super) mod requests;
pub(super) mod resume_tokens;
pub(super) mod selectors;
pub(super) mod tables;

mod input;
mod json;
mod messages;
mod pods;
mod runtime;

/// Counts what is allocated, so that a bound on memory can be checked.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
