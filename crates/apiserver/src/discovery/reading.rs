//! Reads under way.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::UpstreamError;

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    All,
    Group(Arc<str>),
}

/// A read under way.
#[derive(Clone)]
pub(super) struct Refreshing {
    pub(super) started: Instant,
    pub(super) result: watch::Receiver<Option<Result<(), UpstreamError>>>,
}
