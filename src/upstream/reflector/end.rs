//! Why a reflector ends, and why it gives a state up.

use std::time::Duration;

use tokio::time::Instant;

use crate::meta::ResourceVersion;

/// Why a reflector has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReflectorEnd {
    /// The resource does not exist, or no longer exists.
    Gone,
    /// The columns of its tables have changed: the reflector must be started again.
    Changed,
    /// Its tables contain cells that cannot be printed again here.
    Unprintable,
    /// Its objects have no revisions that can be compared.
    Unversioned,
    /// There are more objects (this number) than it may read; see [`super::Handle::read_at_most`].
    Larger(usize),
}

/// Answers in a row that could not be decoded, while the state was at this revision and no bookmark came.
#[derive(Debug, Default)]
pub(super) struct Undecodable {
    at: ResourceVersion,
    pub(super) count: u32,
    last: Option<Instant>,
}

/// Why a state is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Memory,
    Undecodable,
}

/// An answer that cannot be decoded has nothing to do with one that came this long before. Retries are more frequent.
const APART: Duration = Duration::from_secs(600);

// === impl Undecodable ===

impl Undecodable {
    pub(super) fn add(&mut self, at: ResourceVersion) {
        if self.at != at || self.last.is_some_and(|last| last.elapsed() > APART) {
            *self = Self { at, ..Self::default() };
        }
        (self.count, self.last) = (self.count + 1, Some(Instant::now()));
    }
}
