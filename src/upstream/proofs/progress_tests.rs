use std::sync::Arc;

use super::*;
use crate::apiserver::testing::{bare, ticks};
use crate::cache::{self, CacheConfig, Writer};
use crate::meta::{Gvr, Origin, Resource};
use crate::upstream::reflector::{Handle, Reflector, ReflectorConfig};
use crate::upstream::silence::{Heard, Means};
use informerd_sim::{Effect, Fault, Server, Verb};

const PACE: Pace = Pace { alone: Duration::from_millis(1), together: Duration::from_millis(1) };

struct World {
    server: Server,
    probe: Arc<ProgressProbe>,
    claims: mpsc::Receiver<Progress>,
    cache: WatchCache,
    writer: Writer,
}

impl World {
    /// The handle of a stream that nobody follows.
    fn stream(&self) -> Handle {
        let (unused, _) = cache::new(CacheConfig::new(Gvr::new("", "v1", "configmaps")));
        let ProgressProbe { upstream, source, .. } = &*self.probe;
        Reflector::new(upstream.clone(), source.clone(), unused, ReflectorConfig::default()).handle()
    }
}

async fn world(origin: Origin) -> World {
    ticks();
    let server = Server::builder().start().await.unwrap();
    let url: http::Uri = server.url().parse().unwrap();
    let upstream = Upstream::from_config(kube::Config::new(url)).await.unwrap();
    let gvr = Gvr::new("", "v1", "configmaps");
    let source = ListerWatcher::of(Arc::new(Resource { origin, ..Resource::simple("", "configmaps", "ConfigMap") }));
    let (sender, claims) = mpsc::channel(4);
    let (mut writer, cache) = cache::new(CacheConfig::new(gvr));
    crate::lifecycle::spawn("dispatcher", cache.run_dispatcher());
    let probe = Arc::new(ProgressProbe::new(upstream, source, sender, Arc::default()));
    let now = probe.revision(Asked::now(), ResourceVersion::ZERO, PACE).await.unwrap().rv;
    writer.replace(Vec::new(), now).await.unwrap();
    World { server, probe, claims, cache, writer }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cache_is_proved_by_a_bookmark() {
    let mut world = world(Origin::BuiltIn).await;
    // Something happened, but to another type.
    create(&world, "Namespace", "other");
    let revision = world.probe.revision(Asked::now(), ResourceVersion::ZERO, PACE).await.unwrap().rv;
    let from = world.cache.resource_version();
    assert!(revision > from);
    let (probe, cache) = (world.probe.clone(), world.cache.clone());
    let deadline = Instant::now() + Duration::from_secs(60);
    let proof =
        crate::lifecycle::spawn("reader", async move { probe.prove_by_watch(&cache, revision, deadline).await });
    let claim = world.claims.recv().await.unwrap();
    assert_eq!(claim.from, from);
    assert!(claim.to >= revision);
    world.writer.progress(claim.to);
    proof.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn events_that_the_probe_replays_are_waited_for() {
    let mut world = world(Origin::BuiltIn).await;
    let rv = create(&world, "ConfigMap", "x");
    let revision = world.probe.revision(Asked::now(), ResourceVersion::ZERO, PACE).await.unwrap().rv;
    let (probe, cache) = (world.probe.clone(), world.cache.clone());
    let deadline = Instant::now() + Duration::from_secs(4);
    // The main stream never delivers it, so the claim must not be made, whatever the bookmark says.
    let proof = probe.prove_by_watch(&cache, revision, deadline).await;
    assert!(matches!(proof, Err(ProveError::Timeout)), "{proof:?}");
    assert!(world.claims.try_recv().is_err(), "an event at {rv} is missing");
}

#[tokio::test(start_paused = true)]
async fn a_resource_without_bookmarks_is_not_tried_for_ever() {
    let world = world(Origin::BuiltIn).await;
    world.server.faults().add(Fault::always(Effect::NoBookmark));
    create(&world, "Namespace", "other");
    let revision = world.probe.revision(Asked::now(), ResourceVersion::ZERO, PACE).await.unwrap().rv;
    let deadline = Instant::now() + Duration::from_secs(60);
    let watches = async || {
        let proof = world.probe.prove_by_watch(&world.cache, revision, deadline).await;
        assert!(matches!(proof, Err(ProveError::Unprovable)), "{proof:?}");
        world.server.counts().requests(Verb::Watch, "configmaps")
    };
    let tried = watches().await;
    assert_eq!((tried > 0, watches().await), (true, tried), "none is made again");
}

fn create(world: &World, kind: &str, name: &str) -> ResourceVersion {
    let mut metadata = serde_json::json!({"name": name});
    if kind != "Namespace" {
        metadata["namespace"] = "default".into();
    }
    ResourceVersion(
        world.server.create(serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap(),
    )
}

async fn digest(world: &World, part: Option<&Part>) -> ResourceVersion {
    world.probe.digest(&world.cache, part, Asked::now(), PACE).await.unwrap().rv
}

#[tokio::test(start_paused = true)]
async fn a_quiet_collection_is_proved_by_comparison() {
    let mut world = world(Origin::BuiltIn).await;
    create(&world, "Namespace", "other");
    let from = world.cache.resource_version();
    let revision = world.probe.revision(Asked::now(), ResourceVersion::ZERO, PACE).await.unwrap().rv;
    assert!(world.probe.settled(&world.cache, None, revision).await.is_none(), "a revision alone proves nothing");
    let compared = digest(&world, None).await;
    assert_eq!(world.probe.settled(&world.cache, None, revision).await.map(|snapshot| snapshot.rv()), Some(compared));
    assert_eq!(world.cache.resource_version(), from, "it is no progress of the stream");
    assert!(world.claims.try_recv().is_err(), "and nothing is claimed of it");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_proved_alone_and_says_nothing_of_the_others() {
    let mut world = world(Origin::BuiltIn).await;
    let rv = create(&world, "ConfigMap", "x");
    world.writer.apply(crate::meta::EventType::Added, bare("default", "x", rv.0)).await.unwrap();
    let other = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "y", "namespace": "kube-system"}});
    world.server.create(other).unwrap();
    let (default, system) = (Part::namespace("default".into()), Part::namespace("kube-system".into()));
    let compared = digest(&world, Some(&default)).await;
    let proved = world.probe.settled(&world.cache, Some(&default), compared).await.unwrap();
    assert_eq!((proved.rv(), proved.len()), (compared, 1));
    assert_eq!(world.cache.newest(), rv, "nothing is confirmed for other readers");
    let compared = digest(&world, Some(&system)).await;
    assert!(world.probe.settled(&world.cache, Some(&system), compared).await.is_none(), "an object is missing there");
    assert!(world.probe.settled(&world.cache, None, compared).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_compared_before_the_store_was_restored_confirms_nothing() {
    let mut world = world(Origin::BuiltIn).await;
    create(&world, "Namespace", "other");
    let compared = digest(&world, None).await;
    world.writer.rewound("restored");
    let restored = ResourceVersion(compared.get() - 1);
    world.writer.replace(Vec::new(), restored).await.unwrap();
    assert!(world.probe.settled(&world.cache, None, compared).await.is_none());
    assert_eq!(world.cache.newest(), restored);
}

/// A digest of it costs much. It is only read if watches say nothing that should, and not if the number of objects shows
/// enough. While nobody has a reason to ask, less is asked.
#[tokio::test(start_paused = true)]
async fn a_large_collection_is_compared_if_watches_should_have_said_something() {
    let mut world = world(Origin::BuiltIn).await;
    let names = (0..=5000).map(|n| format!("x{n}"));
    let objects = names.map(|name| Arc::new(bare("default", &name, create(&world, "ConfigMap", &name).0))).collect();
    world.writer.replace(objects, ResourceVersion(world.server.revision())).await.unwrap();
    let (stream, at) = (world.stream(), ResourceVersion(world.server.revision()));
    // Questions for the number, and digests.
    let requests = || [Verb::Probe, Verb::List].map(|verb| world.server.counts().requests(verb, "configmaps"));
    let check = async |is_suspected, may_read_all| {
        let before = requests();
        let heard = world.probe.check_stream(&world.cache, &stream, Means { is_suspected, may_read_all }).await;
        (heard, [0, 1].map(|n| requests()[n] - before[n]))
    };
    let no_bookmarks = world.server.faults().add(Fault::always(Effect::NoBookmark));
    assert_eq!(check(true, true).await, (Heard::Nothing, [1, 0]), "others speak");
    world.server.faults().remove(no_bookmarks);
    for mute in [Effect::Stall, Effect::NoInitialEnd] {
        world.server.faults().add(Fault::always(mute));
    }
    assert_eq!(check(false, true).await, (Heard::Strange { compared: true }, [1, 1]));
    assert_eq!(check(true, false).await, (Heard::Strange { compared: false }, [1, 0]));
    assert_eq!(check(true, true).await, (Heard::Strange { compared: true }, [1, 1]));
    create(&world, "ConfigMap", "missed");
    let number = "the store has 5002 objects, and the watch has shown 5001".to_owned();
    assert_eq!(check(true, false).await, (Heard::Missing(number), [1, 0]));
    world.server.delete("configmaps", "default", "x0").unwrap();
    let others = format!("the store has other objects at resource version {} than after {at}", world.server.revision());
    assert_eq!(check(true, true).await, (Heard::Missing(others.clone()), [1, 1]));
    (0..2).for_each(|_| stream.bookmark(Instant::now()));
    assert_eq!(check(false, true).await, (Heard::Missing(others), [1, 1]), "bookmarks came before");
}

/// What its revisions mean nobody knows, but an object that is the same has the same one.
#[tokio::test(start_paused = true)]
async fn a_collection_of_an_aggregated_server_is_compared_twice() {
    let world = world(Origin::Unknown).await;
    let stream = world.stream();
    world.server.faults().add(Fault::always(Effect::Stall));
    let check = async |is_suspected| {
        let means = Means { is_suspected, may_read_all: true };
        world.probe.check_stream(&world.cache, &stream, means).await
    };
    assert!(matches!(check(true).await, Heard::All { bookmark: false, .. }));
    create(&world, "ConfigMap", "missed");
    assert_eq!(check(false).await, Heard::Nothing);
    let lists = world.server.counts().requests(Verb::List, "configmaps");
    let heard = check(true).await;
    assert!(matches!(heard, Heard::Missing(_)), "{heard:?}");
    assert_eq!(world.server.counts().requests(Verb::List, "configmaps") - lists, 2);
}
