//! Makes the revisions in forwarded answers the floor of local reads.

use crate::informer::Factory;
use crate::meta::{RequestInfo, ResourceVersion};
use crate::passthrough::RevisionObserver;
use crate::reads::{Floor, Floors};

/// Raises the floors of the read path, and makes the caches catch up.
pub(super) struct Revisions {
    pub(super) floors: Floors,
    pub(super) factory: Factory,
}

impl RevisionObserver for Revisions {
    fn wrote(&self, info: &RequestInfo, rv: ResourceVersion) {
        self.floors.tell(&info.group, &info.resource, |floor| floor.raise(rv));
    }

    fn wrote_unknown(&self, info: &RequestInfo) {
        self.floors.tell(&info.group, &info.resource, Floor::unknown);
    }

    fn may_have_written(&self, info: &RequestInfo) {
        self.floors.tell(&info.group, &info.resource, Floor::doubt);
    }

    fn showed(&self, info: &RequestInfo, rv: ResourceVersion) {
        self.floors.tell(&info.group, &info.resource, |floor| floor.showed(rv));
        self.factory.advance(&info.group, &info.resource, rv, info.verb);
    }

    fn showed_unknown(&self, info: &RequestInfo) {
        self.floors.tell(&info.group, &info.resource, Floor::unknown);
    }

    fn unreached(&self, info: &RequestInfo) {
        self.floors.tell(&info.group, &info.resource, Floor::unreached);
    }
}
