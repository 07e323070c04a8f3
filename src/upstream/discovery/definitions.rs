//! Follows the definitions of resources, so that everything that depends on them can be resolved again.

use std::collections::HashMap;

use super::Discovery;
use crate::lifecycle::drain::DrainWatch;
use crate::upstream::metadata::{Collection, Metadata, Seen, follow};

/// The two kinds of definitions, each with its path and name.
const KINDS: [(&str, &str); 2] = [
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "customresourcedefinitions.apiextensions.k8s.io"),
    ("/apis/apiregistration.k8s.io/v1/apiservices", "apiservices.apiregistration.k8s.io"),
];

/// What is remembered of each definition. A change of its spec changes the generation, a change of its status does not.
type Known = HashMap<String, (String, i64)>;

impl Discovery {
    /// Follows CustomResourceDefinitions and APIServices until the drain is forced. If they may not be watched,
    /// discovery becomes stale after [`super::DiscoveryConfig::max_age`].
    pub async fn watch_definitions(self, drain: DrainWatch) {
        let [crds, services] = KINDS.map(|(path, resource)| self.follow(path, resource));
        tokio::select! {
            () = crds => {}
            () = services => {}
            () = drain.forced() => {}
        }
    }

    /// Never returns.
    fn follow(&self, path: &'static str, resource: &'static str) -> impl Future<Output = ()> + use<> {
        let refused = self.inner.config.max_age;
        let collection = Collection { path, resource, field_selector: String::new(), listed: true, refused };
        let (discovery, mut known, mut is_refused) = (self.clone(), None, false);
        follow(self.inner.upstream.clone(), collection, move |seen| match seen {
            Seen::Restarted(objects) => {
                is_refused = false;
                discovery.listed(objects, &mut known);
            }
            Seen::Change { deleted, object } => discovery.take(deleted, object, known.get_or_insert_default()),
            // What was read at the time of the first refusal stays valid for the length of the pause.
            Seen::Refused if std::mem::replace(&mut is_refused, true) => discovery.mark_stale(),
            Seen::Refused | Seen::Lost | Seen::Live => {}
        })
    }

    fn listed(&self, objects: Vec<Metadata>, known: &mut Option<Known>) {
        let listed: Known = objects.into_iter().map(|item| (item.name, (item.uid, item.generation))).collect();
        if known.as_ref().is_some_and(|known| *known != listed) {
            self.definition_changed();
        }
        *known = Some(listed);
    }

    fn take(&self, deleted: bool, metadata: &Metadata, known: &mut Known) {
        let state = (metadata.uid.clone(), metadata.generation);
        let same = known.get(&metadata.name) == Some(&state);
        if deleted {
            known.remove(&metadata.name);
        } else {
            known.insert(metadata.name.clone(), state);
        }
        if deleted || !same {
            self.definition_changed();
        } else {
            // A new definition is served only after its status says so, and that does not change its generation.
            self.mark_stale();
        }
    }
}
