//! One side of the comparison.

use std::sync::Arc;

use super::simulated::Running;
use super::tally::Tally;

/// An apiserver, and what its clients have noticed.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) apiserver: Running,
    pub(super) tally: Arc<Tally>,
}
