//! Follows the definitions of resources, so that what depends on them is resolved again when it changes.

use parking_lot::Mutex;

use super::Discovery;
use super::built_in::is_built_in;
use super::changed::Subject;
use super::definitions::{Definitions, Followed, Kind, Known};
use crate::metadata::{Metadata, Seen, follow};
use informerd_lifecycle::drain::DrainWatch;

// === impl Discovery ===

impl Discovery {
    /// Follows the APIServices from now on.
    pub fn follow_services(&self) {
        self.follow_from_now(Followed::Services);
    }

    /// Follows all definitions from now on, if the group can have any.
    pub fn follow_definitions_of(&self, group: &str) {
        if !is_built_in(group) {
            self.follow_from_now(Followed::All);
        }
    }

    fn follow_from_now(&self, wanted: Followed) {
        // Every read comes here: the lock is shared once they are followed.
        if *self.inner.followed.borrow() >= wanted {
            return;
        }
        self.inner.followed.send_if_modified(|followed| {
            let is_more = *followed < wanted;
            *followed = wanted.max(*followed);
            is_more
        });
    }

    /// Follows CustomResourceDefinitions and APIServices, each once it is wanted, until the drain is forced. If they may
    /// not be watched, everything counts as changed every [`super::DiscoveryConfig::max_age`].
    pub async fn watch_definitions(self, drain: DrainWatch) {
        let [definitions, services] = [Kind::Definition, Kind::Service].map(|kind| self.follow(kind));
        self.servers().are_awaited();
        tokio::select! {
            () = definitions => {}
            () = services => {}
            () = self.servers().clone().forget_when_blind(self.inner.upstream.clone()) => {}
            () = drain.forced() => {}
        }
    }

    /// Never returns.
    fn follow(&self, kind: Kind) -> impl Future<Output = ()> + use<> {
        let (discovery, mut is_refused) = (self.clone(), false);
        let mut followed = self.inner.followed.subscribe();
        let collection = kind.collection(self.inner.config.max_age);
        let following = follow(self.inner.upstream.clone(), collection, move |seen| {
            if kind == Kind::Service {
                discovery.note_servers(&seen);
            }
            discovery.note(kind, seen, &mut is_refused);
        });
        async move {
            // The sender is held by what follows.
            if followed.wait_for(|followed| *followed >= kind.followed()).await.is_ok() {
                following.await;
            }
        }
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
            Seen::Lost { .. } | Seen::Live | Seen::Pinged => {
                servers.set_lost(matches!(seen, Seen::Lost { .. }));
                false
            }
        };
        if moved {
            self.tell();
        }
    }

    fn note(&self, kind: Kind, seen: Seen<'_>, is_refused: &mut bool) {
        let changed: Vec<_> = match seen {
            Seen::Restarted(objects) => {
                *is_refused = false;
                self.note_first(kind, &objects);
                self.definitions(kind).lock().listed(kind, &objects)
            }
            Seen::Change { deleted, object } => {
                let is_changed = self.definitions(kind).lock().take(kind, deleted, object);
                is_changed.then(|| object.name.clone()).into_iter().collect()
            }
            // What was read at the time of the first refusal stays valid for the length of the pause.
            Seen::Refused if std::mem::replace(is_refused, true) => {
                self.mark(&Subject::All);
                return;
            }
            Seen::Refused | Seen::Lost { .. } | Seen::Live | Seen::Pinged => return,
        };
        for name in &changed {
            self.mark(&kind.subject(name));
        }
        if !changed.is_empty() {
            self.tell();
        }
    }

    /// What was read before the first list of APIServices may be outdated. An informer may already run, and have taken a resource
    /// of another server for one of the kube-apiserver. And discovery may have been read long before, and lack versions.
    fn note_first(&self, kind: Kind, objects: &[Metadata]) {
        if kind != Kind::Service || self.definitions(kind).lock().was_listed {
            return;
        }
        let index = self.inner.index.load();
        for object in objects.iter().filter(|object| !object.name.is_empty()) {
            let subject = kind.subject(&object.name);
            let is_lacking = index.as_deref().is_some_and(|index| match &subject {
                Subject::Version { group, version } => index.is_current(group, version).is_none(),
                Subject::Resource { .. } | Subject::All => false,
            });
            let is_aggregated = object.has_service != Some(false);
            if is_lacking || is_aggregated && self.inner.resolutions.uses(&subject) {
                self.mark(&subject);
            }
        }
    }

    fn definitions(&self, kind: Kind) -> &Mutex<Definitions> {
        match kind {
            Kind::Definition => &self.inner.definitions,
            Kind::Service => &self.inner.services,
        }
    }

    /// A CustomResourceDefinition was read on its own.
    pub(super) fn learn(&self, name: &str, known: Known) {
        let is_changed = self.inner.definitions.lock().learn(name, known);
        if is_changed {
            // The watch will not tell what is known by then.
            self.mark(&Kind::Definition.subject(name));
            self.tell();
        }
    }
}
