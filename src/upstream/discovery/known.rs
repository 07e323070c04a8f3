//! What was read last, for whoever keeps it.

use super::built_in::is_built_in;
use super::{ApiResource, Discovery};
use crate::meta::{Gvr, Origin, Resource};

impl Discovery {
    /// The resources that were read last, sorted, as far as it is known which server serves them. Asks nothing.
    pub fn known(&self) -> Vec<Resource> {
        let index = self.inner.index.load();
        let origin = |gvr: &Gvr| match self.inner.resolutions.last(gvr) {
            Some(known) => Some(known.origin.clone()),
            None => (is_built_in(gvr) && !self.inner.servers.is_aggregated(gvr)).then_some(Origin::BuiltIn),
        };
        let of = |found: &ApiResource| {
            let ApiResource { gvr, kind, namespaced, verbs, .. } = found;
            let (gvr, kind, origin) = (gvr.clone(), kind.as_str().into(), origin(gvr)?);
            Some(Resource { gvr, kind, namespaced: *namespaced, verbs: *verbs, origin })
        };
        let mut all: Vec<_> = index.iter().flat_map(|index| index.resources().filter_map(of)).collect();
        all.sort_by(|a, b| a.gvr.cmp(&b.gvr));
        all
    }
}
