//! The HTTP side: listeners, what requests ask for, and the reads said in the apiserver's words.

pub mod age;
mod away;
pub mod body;
mod client_certificates;
pub mod clients;
pub mod config;
mod ending;
pub mod error;
pub mod explain;
mod framing;
mod gate;
mod gather;
pub mod guard;
pub mod gzip;
mod handshake;
mod io;
mod list_body;
pub mod listener;
pub mod metrics;
mod newcomer;
pub mod patient;
mod places;
mod protocol;
pub mod read;
mod relayed_watch;
pub mod server;
pub mod service;
mod spans;
mod target;
#[cfg(test)]
mod testing;
pub mod tls;
mod wanted;
mod watch_body;
mod websocket;
mod writer;
mod written;

pub use age::AgeLimits;
pub use config::{CertificateFiles, HttpConfig, ListenAddr, TlsConfig};
pub use error::{AUDIT_ID, audit_id};
pub use guard::Guard;
pub use gzip::GzipConfig;
pub use metrics::HttpMetrics;
pub use server::{BoxFuture, Connection, Handler, Server};
pub use service::{Service, ServiceParts};
pub use tls::Certificates;
