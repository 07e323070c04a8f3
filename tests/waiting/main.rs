//! Suites that wait most of their time, for rights to be asked about again and for clocks. `tests/run` runs them beside the others.

#[path = "../judge/cluster.rs"]
mod cluster;
#[path = "../judge/injector.rs"]
mod injector_process;
#[path = "../judge/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
#[path = "../judge/world.rs"]
mod world;

mod access;
mod expiry;
mod injector;
mod protobuf;
mod served;
mod vectors;

/// Of what is random: `tests/search` chooses others.
fn seed(default: u64) -> u64 {
    std::env::var("INFORMERD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(default)
}
