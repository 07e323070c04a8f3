//! The daemon and its binary before a real kube-apiserver, or a simulated one where that is enough.

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

mod backup;
mod cli;
mod consistency;
mod crontabs;
mod daemon;
mod grpc;
mod gzip;
mod injector;
mod kubeconfigs;
mod liveness;
mod otel;
mod recovery;
mod restore;
mod snapshots;
