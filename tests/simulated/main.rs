//! The whole daemon before a simulated apiserver.

#[path = "../support/mod.rs"]
mod support;

mod disk;
mod faults;
mod freshness;
mod look;
mod unconfirmed;
