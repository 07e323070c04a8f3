//! The way in: addresses, TLS, and admission control. A connection is accepted, its client is known or not, and what it
//! may hold is bounded.

mod accept_tls;
mod accounts;
mod certified_key;
mod cipher_suites;
mod client_certificates;
mod config;
mod connection;
mod guard;
pub(super) mod head_size;
mod listener;
mod local_ca;
mod newcomer;
mod open_head;
mod places;
mod preface;
mod socket;
mod tls;
mod unix_socket;

pub(super) use accept_tls::accept_tls;
pub(super) use accounts::Accounts;
pub(super) use cipher_suites::TlsServer;
pub use config::{CertificateFiles, ConnectionLimits, HttpConfig, ListenAddr, TlsConfig};
pub use connection::Connection;
pub use guard::Guard;
pub(super) use guard::GuardError;
pub(super) use head_size::HEADER_COST;
pub use listener::BindError;
pub(super) use listener::{BACKLOG, Listener, is_of_one_connection};
#[cfg(test)]
pub(super) use newcomer::Heard;
pub(super) use newcomer::{Newcomer, Newcomers, Stage, TooMuch, Wait};
pub(super) use open_head::{FREE, OpenHead, OpenHeads, READ, Reserved};
pub(super) use places::Places;
pub(super) use preface::{HTTP2_PREFACE, Protocol};
pub(super) use socket::{Accepted, Socket, Tcp};
pub use tls::Certificates;
