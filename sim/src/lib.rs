//! A small simulated API server on real sockets: the cluster of `informerd demo` and the fault injector of the tests.
//! It has the list and watch semantics of the kube-apiserver as far as clients can observe them, and violates them
//! only as specified by a [`Fault`].

mod body;
pub mod cluster;
mod counts;
mod discovery;
mod encode;
mod fault;
mod handler;
mod kubeconfig;
mod list;
mod net;
mod options;
mod patch;
mod proto;
mod registry;
mod select;
mod server;
mod store;
mod stored;
mod subresource;
mod table;
mod types;
mod watch;
mod write;

pub use cluster::{Cluster, DemoConfig};
pub use counts::{Counts, RequestRecord, Verb};
pub use fault::{Cut, Effect, Fault, FaultId, Faults};
pub use kubeconfig::kubeconfig;
pub use server::{Builder, Reviews, Server};
pub use store::{Change, Entry, Store};
pub use stored::Stored;
pub use types::{EventType, Gvr, ObjectKey, Scope, Status, StatusCause, StatusDetails};

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
