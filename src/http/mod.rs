//! The HTTP side: listeners, request parsing, and reads answered in the apiserver's format.
//!
//! It has four parts, each of which imports only those before it: [`record`], [`door`], [`answer`] and [`wire`]. The files
//! beside them are above all four: the server, and the service, which decides what happens to a request.

mod access_log;
mod answer;
mod arrival;
mod away;
mod door;
mod not_older;
mod record;
mod relayed_watch;
mod rent;
mod request_record;
mod sender;
pub mod server;
pub mod service;
mod spans;
#[cfg(test)]
pub(crate) mod testing;
mod wire;

pub use access_log::AccessLog;
pub use answer::{AUDIT_ID, Body, BoxFuture, Handler, Parsed, Patient, RequestBody, audit_id, body, read};
pub use door::{
    BindError, CertificateFiles, Certificates, Connection, ConnectionLimits, Guard, HttpConfig, ListenAddr, TlsConfig,
};
pub use record::{Client, HttpMetrics};
pub use request_record::RequestRecord;
pub use server::Server;
pub use service::{Service, ServiceParts};
pub use wire::{Bounded, Http2Socket};
