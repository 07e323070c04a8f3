//! Programs that others have written: informers of many languages, the client packages with the examples, promtool, helm, kubectl and actionlint.

#[path = "../judge/cluster.rs"]
mod cluster;
#[path = "../judge/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;
#[path = "../judge/world.rs"]
mod world;

mod alerts;
mod chart;
mod clients;
mod dashboard;
mod dist;
mod examples;
mod packages;
