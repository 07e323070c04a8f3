//! The package before a server that says what it is told to say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cache;
mod documented;
mod fake;
mod queue;
mod server;
mod watch;
