//! The reverse proxy for everything that is not served from a cache. Bodies are streamed in both directions, equal
//! reads share one upstream read, discovery documents are revalidated instead of read again, and upgrades become
//! tunnels.

mod admission;
mod away;
mod coalesce;
mod discovery;
mod error;
mod forward;
mod headers;
mod identity;
mod metrics;
mod observe;
mod paced;
mod parts;
mod places;
mod protobuf;
mod read;
mod revision;
mod shared;
#[cfg(test)]
pub(crate) mod testing;
mod tunnel;
pub(crate) mod websocket;

use std::error::Error;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

pub(crate) use away::warn;
pub(crate) use error::ForwardError;
pub(crate) use forward::{Forward, ForwardConfig, Sender};
pub(crate) use identity::{LendIdentity, has_own_credentials};
pub(crate) use observe::RevisionObserver;
pub(crate) use places::Client;
pub(crate) use read::Otherwise;
pub(crate) use shared::Shared;
pub(crate) use tunnel::Tunnel;

pub(crate) use crate::apiserver::client::VIA;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// The streamed body of the apiserver's answer.
pub(crate) type ForwardBody = UnsyncBoxBody<Bytes, BoxError>;
