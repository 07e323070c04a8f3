//! The reverse proxy for everything that is not served from a cache: bodies stream through both ways, equal reads share
//! one upstream read, discovery is confirmed instead of read again, and upgrades become tunnels.

mod away;
mod coalesce;
mod discovery;
mod error;
mod forward;
mod headers;
mod identity;
mod observe;
mod paced;
mod protobuf;
mod revision;
mod shared;
mod tunnel;
pub mod websocket;

use std::error::Error;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

pub use away::warn;
pub use error::ForwardError;
pub use forward::{Forward, ForwardConfig, ForwardMetrics, Sender};
pub use identity::{LendIdentity, has_own_credentials};
pub use observe::RevisionObserver;
pub use tunnel::Tunnel;

pub use crate::upstream::client::VIA;

pub type BoxError = Box<dyn Error + Send + Sync>;

/// The body of the apiserver's answer, as it comes.
pub type ForwardBody = UnsyncBoxBody<Bytes, BoxError>;
