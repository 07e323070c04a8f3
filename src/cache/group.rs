//! A group of the fan-out: watchers with an equal predicate, which share a ring.

use super::ring::SharedRing;
use crate::selector::Predicate;

/// All watchers with one predicate.
#[derive(Debug)]
pub(super) struct WatchGroup {
    pub(super) predicate: Predicate,
    pub(super) ring: SharedRing,
    pub(super) place: Place,
}

/// Where a group stands: with what an object must have to be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Every object of the scope may be selected.
    Plain,
    Trigger(Box<str>),
    Label {
        key: Box<str>,
        value: Box<str>,
    },
}
