//! The whole daemon before a simulated apiserver.

#[path = "../support/mod.rs"]
mod support;

mod demo;
mod disk;
mod faults;
mod freshness;
mod history;
mod look;
mod seeded;
mod start;
mod unconfirmed;
