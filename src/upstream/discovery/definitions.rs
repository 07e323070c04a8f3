//! Follows the definitions of resources, so that everything that depends on them can be resolved again.

use std::collections::HashMap;

use super::Discovery;
use crate::lifecycle::drain::DrainWatch;
use crate::upstream::metadata::{Collection, Metadata, Seen, follow};

/// The two kinds of definitions, each with its path and name, and whether its specs are needed.
const KINDS: [(&str, &str, bool); 2] = [
    (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "customresourcedefinitions.apiextensions.k8s.io",
        false,
    ),
    // A change of their specs does not change their generation.
    ("/apis/apiregistration.k8s.io/v1/apiservices", "apiservices.apiregistration.k8s.io", true),
];

/// What is remembered of each definition. A change of its spec changes the generation, a change of its status does not.
type Known = HashMap<String, (String, i64)>;

impl Discovery {
    /// Follows CustomResourceDefinitions and APIServices until the drain is forced. If they may not be watched,
    /// discovery becomes stale after [`super::DiscoveryConfig::max_age`].
    pub async fn watch_definitions(self, drain: DrainWatch) {
        let [crds, services] = KINDS.map(|(path, resource, whole)| self.follow(path, resource, whole));
        tokio::select! {
            () = crds => {}
            () = services => {}
            () = self.servers().clone().forget_when_blind(self.inner.upstream.clone()) => {}
            () = drain.forced() => {}
        }
    }

    /// Never returns.
    fn follow(&self, path: &'static str, resource: &'static str, whole: bool) -> impl Future<Output = ()> + use<> {
        let refused = self.inner.config.max_age;
        let collection = Collection { path, resource, field_selector: String::new(), listed: true, whole, refused };
        let (discovery, mut known, mut is_refused) = (self.clone(), None, false);
        follow(self.inner.upstream.clone(), collection, move |seen| {
            if whole {
                discovery.note_servers(&seen);
            }
            discovery.note(seen, &mut known, &mut is_refused);
        })
    }

    /// Before anything else is told of the change: who is told must see it.
    fn note_servers(&self, seen: &Seen<'_>) {
        let servers = self.servers();
        let moved = match seen {
            Seen::Restarted(objects) => servers.listed(objects),
            Seen::Change { deleted, object } => servers.take(*deleted, object),
            Seen::Refused => {
                servers.refused();
                false
            }
            Seen::Lost | Seen::Live => {
                servers.set_lost(matches!(seen, Seen::Lost));
                false
            }
        };
        if moved {
            self.definition_changed();
        }
    }

    fn note(&self, seen: Seen<'_>, known: &mut Option<Known>, is_refused: &mut bool) {
        match seen {
            Seen::Restarted(objects) => {
                *is_refused = false;
                self.listed(objects, known);
            }
            Seen::Change { deleted, object } => self.take(deleted, object, known.get_or_insert_default()),
            // What was read at the time of the first refusal stays valid for the length of the pause.
            Seen::Refused if std::mem::replace(is_refused, true) => self.mark_stale(),
            Seen::Refused | Seen::Lost | Seen::Live => {}
        }
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
