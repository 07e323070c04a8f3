//! What needs namespaces or cgroups of its own: the manifests, run as the kubelet would, and memory limits.

#[path = "../judge/cluster.rs"]
mod cluster;
#[path = "../judge/injector.rs"]
mod injector_process;
#[path = "../judge/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

mod manifests;
mod memory;
