//! The status page in a real browser.

#[path = "../support/mod.rs"]
mod support;

mod status;
