//! What was read last, for whoever keeps it.

use super::built_in::is_built_in;
use super::{ApiResource, Discovery};
use crate::meta::{Origin, Resource};

impl Discovery {
    /// The resources that were read last, sorted, as far as it is known which server serves them. Asks nothing.
    pub fn known(&self) -> Vec<Resource> {
        let index = self.inner.index.load();
        let of = |found: &ApiResource| {
            let ApiResource { gvr, kind, namespaced, verbs, .. } = found;
            // A definition has decided more than where it is served.
            if let Some(resolved) = self.inner.resolutions.last(gvr) {
                return Some((*resolved).clone());
            }
            let is_ours = is_built_in(gvr) && !self.inner.servers.is_aggregated(gvr);
            let (gvr, kind, origin) = (gvr.clone(), kind.as_str().into(), is_ours.then_some(Origin::BuiltIn)?);
            Some(Resource { gvr, kind, namespaced: *namespaced, verbs: *verbs, origin })
        };
        let mut all: Vec<_> = index.iter().flat_map(|index| index.resources().filter_map(of)).collect();
        all.sort_by(|a, b| a.gvr.cmp(&b.gvr));
        all
    }
}
