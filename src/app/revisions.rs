//! Makes the revisions in forwarded answers the floor of local reads.

use std::sync::Arc;

use crate::cache::{Floor, Floors};
use crate::informer::{Factory, Informer};
use crate::meta::{ObjectKey, RequestInfo, ResourceVersion, Verb};
use crate::passthrough::RevisionObserver;

/// Raises the floors of the read path, and makes the caches catch up.
pub(super) struct Revisions {
    pub(super) floors: Floors,
    pub(super) factory: Factory,
}

/// What a cache says of an object that the apiserver has said is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shows {
    /// No cache has it, and each is as new as what clients have seen.
    Nothing,
    /// It may show the object on its way to a revision that clients have seen, or in its first state.
    Perhaps,
    Object,
}

impl Revisions {
    /// The most that any cache shows of the object.
    fn shows(&self, info: &RequestInfo) -> Shows {
        let key = ObjectKey::new(info.scope().unwrap_or_default(), &info.name);
        let floor = self.shown(info);
        let of_informer = |informer: Arc<Informer>| match informer.cache().snapshot() {
            Some(state) if state.get(&key).is_some() => Shows::Object,
            Some(state) if state.rv() >= floor => Shows::Nothing,
            _ => Shows::Perhaps,
        };
        let informers = self.of(info).into_iter().filter(|informer| holds(informer, info));
        informers.map(of_informer).max().unwrap_or(Shows::Nothing)
    }

    /// The informers of the resource.
    fn of(&self, info: &RequestInfo) -> Vec<Arc<Informer>> {
        self.factory.of_history(&info.gvr())
    }

    fn known(&self, info: &RequestInfo) -> Option<Arc<Floor>> {
        self.floors.known(&self.factory.store_of(&info.gvr()), &info.resource)
    }

    fn tell(&self, info: &RequestInfo, what: impl FnOnce(&Floor)) {
        self.floors.tell(&self.factory.store_of(&info.gvr()), &info.resource, what);
    }
}

/// Whether an informer of the resource holds the object, if there is one.
fn holds(informer: &Informer, info: &RequestInfo) -> bool {
    informer.key().scope.namespace.as_deref().is_none_or(|ours| ours == info.scope().unwrap_or_default())
}

/// The stream of an object that is or was at `rv` must deliver it.
fn must_deliver(informer: &Arc<Informer>, info: &RequestInfo, rv: ResourceVersion) {
    // The answer of another subresource may be an object of another type.
    if matches!(info.subresource.as_str(), "" | "status") && holds(informer, info) {
        informer.must_deliver(rv);
    }
}

impl RevisionObserver for Revisions {
    fn wrote(&self, info: &RequestInfo, rv: ResourceVersion) {
        self.tell(info, |floor| floor.raise(rv));
        self.of(info).iter().for_each(|informer| must_deliver(informer, info, rv));
    }

    fn wrote_unknown(&self, info: &RequestInfo) {
        self.tell(info, Floor::wrote_unknown);
    }

    fn may_have_written(&self, info: &RequestInfo) {
        // A client may name any resource, and have the request fail. Nothing is written where none exists.
        let is_read = self.known(info).is_some();
        if is_read || self.factory.may_exist(&info.group, &info.resource) {
            self.tell(info, Floor::doubt);
        }
    }

    fn shown(&self, info: &RequestInfo) -> ResourceVersion {
        self.known(info).map_or(ResourceVersion::ZERO, |floor| floor.get())
    }

    fn showed(&self, info: &RequestInfo, rv: ResourceVersion, known: ResourceVersion) {
        // An object, or an event of a watch, says nothing of the window of the apiserver.
        let tell = if info.verb == Verb::List { Floor::showed } else { Floor::raise };
        self.tell(info, |floor| {
            floor.rewound(known, rv);
            tell(floor, rv);
        });
        for informer in self.of(info) {
            informer.was_shown(rv, info.verb);
            // A list has a revision that need not be one of its objects.
            if info.verb == Verb::Get {
                must_deliver(&informer, info, rv);
            }
        }
    }

    fn showed_unknown(&self, info: &RequestInfo) {
        self.tell(info, Floor::showed_unknown);
    }

    /// An object that a cache shows was deleted, at a revision that nobody has told.
    fn showed_none(&self, info: &RequestInfo) {
        // Whoever may read an object may also ask for it in a version that there is not.
        if !self.factory.serves(&info.gvr()) {
            return;
        }
        match self.shows(info) {
            Shows::Object => self.wrote_unknown(info),
            // Until a cache is proved to be newer. Anybody may ask for what does not exist, so reads that are forwarded are
            // sent to the store itself for a short time only.
            Shows::Perhaps => self.tell(info, |floor| {
                floor.doubt();
                floor.showed_unknown();
            }),
            Shows::Nothing => {}
        }
    }

    fn unreached(&self, info: &RequestInfo) {
        self.tell(info, Floor::unreached);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::apiserver::client::Upstream;
    use crate::apiserver::discovery::{ApiResource, Discovery};
    use crate::codec::json;
    use crate::meta::{AttributesBuilder, FieldTable, Object, Raw, Resource};

    async fn revisions() -> Revisions {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let upstream = Upstream::from_config(nowhere).await.unwrap();
        let discovery = Discovery::knowing(upstream.clone(), vec![ApiResource::core("configmaps", "ConfigMap")]);
        let factory = Factory::simple(Duration::from_secs(3600), upstream, discovery);
        Revisions { floors: Floors::default(), factory }
    }

    #[tokio::test]
    async fn an_object_that_a_cache_shows_and_the_apiserver_does_not_was_deleted() {
        let revisions = revisions().await;
        let mut writer = revisions.factory.put(Resource::simple("", "configmaps", "ConfigMap"));
        let item = r#"{"metadata":{"name":"shown","namespace":"a","resourceVersion":"5"}}"#;
        let object = Arc::new(json::parse_item(item.as_bytes(), &FieldTable::default()).unwrap().0);
        writer.replace(vec![object], ResourceVersion(5)).await.unwrap();
        for (version, namespace, name, was_deleted) in [
            ("v2", "a", "shown", false),
            ("v1", "b", "shown", false),
            ("v1", "a", "other", false),
            ("v1", "a", "shown", true),
        ] {
            let floor = revisions.floors.of("", "configmaps");
            floor.cover(floor.uncovered().unwrap_or_default(), ResourceVersion(5));
            let path = format!("/api/{version}/namespaces/{namespace}/configmaps/{name}");
            revisions.showed_none(&RequestInfo::parse("GET", &path, ""));
            assert_eq!(floor.has_unknown_write(), was_deleted, "{path}");
        }
    }

    /// A watch from there would be forwarded, and from everything after it.
    #[tokio::test]
    async fn only_a_list_shows_where_a_watch_may_begin() {
        let revisions = revisions().await;
        let floor = revisions.floors.of("", "configmaps");
        let rv = ResourceVersion;
        revisions.showed(&RequestInfo::parse("GET", "/api/v1/namespaces/a/configmaps/one", ""), rv(42), rv(0));
        revisions.showed(&RequestInfo::parse("GET", "/api/v1/configmaps", "watch=1"), rv(50), rv(0));
        assert_eq!((floor.get(), floor.may_have_shown(rv(60))), (rv(50), false));
        let list = RequestInfo::parse("GET", "/api/v1/configmaps", "");
        revisions.showed(&list, rv(60), revisions.shown(&list));
        assert_eq!([59, 60, 61].map(|at| floor.may_have_shown(rv(at))), [false, true, true]);
        // One that the store itself answers shows where it is, whatever an older state has shown.
        revisions.showed(&list, rv(59), rv(0));
        assert_eq!(floor.get(), rv(60));
        revisions.showed(&list, rv(40), revisions.shown(&list));
        assert_eq!((floor.get(), floor.may_have_shown(rv(39))), (rv(40), false));
    }

    /// There is no cache, it is still starting, shows the object, or has none, before and at what clients have seen.
    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_gone_counts_as_long_as_a_cache_may_show_it() {
        let one = || {
            let raw = Raw::new(r#"{"metadata":{"name":"one"}},"#.into(), 12..26, 0..0);
            let attributes = AttributesBuilder::new("uid").build();
            std::sync::Arc::new(Object::new(ObjectKey::new("a", "one"), ResourceVersion(3), attributes, raw))
        };
        // Whether forwarded reads go to the store, and cached ones need a proof: now, and after a while.
        for (state, counts) in [
            (None, [[false, false], [false, false]]),
            (Some(None), [[true, true], [false, true]]),
            (Some(Some((4, vec![one()]))), [[true, true], [true, true]]),
            (Some(Some((4, Vec::new()))), [[true, true], [false, true]]),
            (Some(Some((5, Vec::new()))), [[false, false], [false, false]]),
        ] {
            let revisions = revisions().await;
            let floor = revisions.floors.of("", "configmaps");
            floor.raise(ResourceVersion(5));
            let has_cache = state.is_some();
            let mut writer = has_cache.then(|| revisions.factory.put(Resource::simple("", "configmaps", "ConfigMap")));
            if let (Some(writer), Some((rv, objects))) = (&mut writer, state.clone().flatten()) {
                writer.replace(objects, ResourceVersion(rv)).await.unwrap();
            }
            revisions.showed_none(&RequestInfo::parse("GET", "/api/v1/namespaces/a/configmaps/one", ""));
            let now = [floor.has_unknown_write(), floor.uncovered().is_some()];
            tokio::time::advance(Duration::from_secs(11)).await;
            let later = [floor.has_unknown_write(), floor.uncovered().is_some()];
            assert_eq!([now, later], counts, "{state:?}");
        }
    }

    #[tokio::test]
    async fn a_write_that_may_have_happened_counts_for_resources_that_exist() {
        let revisions = revisions().await;
        for path in ["/api/v1/namespaces/a/configmaps", "/apis/g1/v1/r1", "/apis/g2/v1/configmaps"] {
            revisions.may_have_written(&RequestInfo::parse("POST", path, ""));
        }
        let floors = &revisions.floors;
        assert!(floors.known("", "configmaps").unwrap().uncovered().is_some());
        assert!(floors.known("g1", "r1").is_none() && floors.known("g2", "configmaps").is_none());
    }
}
