use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::cache::{
    self, CacheConfig, CacheWatcher, Order, Readiness, WatchCache, WatchSpec, WatchStart, WatcherEvent,
};
use crate::lifecycle::backoff::BackoffConfig;
use crate::lifecycle::spawn;
use crate::meta::{Resource, Scope};
use crate::selector::Predicate;
use informerd_sim::{Cut, Effect, Fault, Server, Verb};

pub(super) const SOON: Duration = Duration::from_secs(60);

/// A running reflector with its cache.
pub(super) struct World {
    pub(super) cache: WatchCache,
    pub(super) handle: Handle,
    pub(super) claims: mpsc::Sender<Progress>,
    pub(super) upstream: Upstream,
    pub(super) task: JoinHandle<ReflectorEnd>,
}

pub(super) fn config() -> ReflectorConfig {
    ReflectorConfig {
        initial_idle: Duration::from_millis(500),
        initial_end: Duration::from_millis(500),
        backoff: BackoffConfig {
            initial: Duration::from_millis(20),
            max: Duration::from_millis(200),
            ..BackoffConfig::default()
        },
        ..ReflectorConfig::default()
    }
}

pub(super) fn lister(group: &str, name: &str, kind: &str) -> ListerWatcher {
    ListerWatcher::of(Arc::new(Resource::simple(group, name, kind)))
}

pub(super) fn reflect(upstream: Upstream, lister: ListerWatcher, config: ReflectorConfig) -> World {
    let cache = CacheConfig::new(lister.resource.gvr.clone());
    reflect_into(cache, upstream, lister, config, None)
}

/// It may begin with a saved state.
pub(super) fn reflect_into(
    cache: CacheConfig,
    upstream: Upstream,
    lister: ListerWatcher,
    config: ReflectorConfig,
    saved: Option<LoadSaved>,
) -> World {
    let (writer, cache) = cache::new(cache);
    spawn("dispatcher", cache.run_dispatcher());
    let mut reflector = Reflector::new(upstream.clone(), lister, writer, config);
    if let Some(saved) = saved {
        reflector = reflector.with_saved(saved);
    }
    let (handle, claims) = (reflector.handle(), reflector.progress_sender());
    World { cache, handle, claims, upstream, task: spawn("reflector", reflector.run()) }
}

/// It is started for somebody who lists.
async fn reflector_by_list(server: &Server, lister: ListerWatcher) -> World {
    let (writer, cache) = cache::new(CacheConfig::new(lister.resource.gvr.clone()));
    spawn("dispatcher", cache.run_dispatcher());
    let upstream = client(&server.url()).await;
    let reflector = Reflector::new(upstream.clone(), lister, writer, config()).by_list(true);
    let (handle, claims) = (reflector.handle(), reflector.progress_sender());
    World { cache, handle, claims, upstream, task: spawn("reflector", reflector.run()) }
}

pub(super) async fn client(url: &str) -> Upstream {
    Upstream::from_config(kube::Config::new(url.parse().unwrap())).await.unwrap()
}

/// A reflector of configmaps.
async fn start(server: &Server, config: ReflectorConfig) -> World {
    reflect(client(&server.url()).await, lister("", "configmaps", "ConfigMap"), config)
}

pub(super) fn config_map(name: &str, value: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}})
}

impl World {
    /// Waits until the cache holds exactly the server's objects.
    #[track_caller]
    pub(super) fn converge(&self, server: &Server) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        let wanted = server.state("configmaps");
        async move {
            let held = || {
                let (snapshot, scope) = (self.cache.snapshot()?, Scope::all());
                let all = snapshot.range(&scope, None);
                Some(all.map(|object| (object.key.to_string(), object.rv.0)).collect::<BTreeMap<_, _>>())
            };
            let wait = timeout(SOON, async {
                while held().as_ref() != Some(&wanted) {
                    sleep(Duration::from_millis(5)).await;
                }
            });
            assert!(wait.await.is_ok(), "{caller}: {:?} is not {wanted:?}; {:?}", held(), self.handle.status());
        }
    }

    pub(super) async fn follows(&self) -> ReflectorStatus {
        self.until(|status| status.state == "follow").await
    }

    pub(super) async fn until(&self, condition: impl FnMut(&ReflectorStatus) -> bool) -> ReflectorStatus {
        let wait = timeout(SOON, self.handle.wait_for(condition)).await;
        wait.unwrap_or_else(|_| panic!("{:?}", self.handle.status()))
    }

    /// A watcher of everything from now on.
    pub(super) fn watcher(&self) -> CacheWatcher {
        let spec = WatchSpec {
            predicate: Predicate::everything(),
            start: WatchStart::Now,
            bookmarks: false,
            initial_end: false,
            deadline: Instant::now() + Duration::from_secs(60),
        };
        self.cache.watch(spec).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn syncs_by_one_watch_and_follows_it() {
    let server = Server::builder().object(config_map("a", "1")).object(config_map("b", "1")).start().await.unwrap();
    let world = start(&server, config()).await;
    world.converge(&server).await;
    server.create(config_map("c", "1")).unwrap();
    server.update(config_map("a", "2")).unwrap();
    server.delete("configmaps", "default", "b").unwrap();
    world.converge(&server).await;
    let counts = server.counts();
    assert_eq!((counts.requests(Verb::Watch, "configmaps"), counts.requests(Verb::List, "configmaps")), (1, 0));
    assert_eq!(counts.requests(Verb::Probe, "configmaps"), 1, "for the form");
    assert_eq!(world.upstream.metrics().total(RequestVerb::WatchList, Some("configmaps")), 1);
    let status = world.handle.status();
    assert_eq!((status.state, status.events, status.relists), ("follow", 3, 0));
    assert_eq!(status.resource_version, world.cache.resource_version());
}

#[tokio::test]
async fn an_empty_collection_has_a_whole_form_and_a_bookmark_template() {
    let server = Server::builder().start().await.unwrap();
    let world = start(&server, config()).await;
    world.follows().await;
    let form = world.cache.form().unwrap();
    assert_eq!((&**form.api_version(), &**form.kind(), &**form.list_kind()), ("v1", "ConfigMap", "ConfigMapList"));
    let template = String::from_utf8(world.cache.bookmark_template().unwrap().to_vec()).unwrap();
    assert!(template.contains("\"kind\":\"ConfigMap\""), "{template}");
}

/// What it has, and its requests: lists of one object, other lists, and watches.
async fn started(server: &Server, world: &World, resource: &str) -> (Form, [u64; 3]) {
    world.follows().await;
    let requests = [Verb::Probe, Verb::List, Verb::Watch].map(|verb| server.counts().requests(verb, resource));
    ((*world.cache.form().unwrap()).clone(), requests)
}

/// The form decides about every byte of a list without objects.
#[tokio::test]
async fn the_form_of_a_built_in_type_is_what_a_list_shows_and_not_asked_for() {
    // The simulated apiserver has config maps and secrets in protobuf.
    for (encoding, types) in [
        (Encoding::Json, [("", "pods", "Pod"), ("discovery.k8s.io", "endpointslices", "EndpointSlice")]),
        (Encoding::Protobuf, [("", "configmaps", "ConfigMap"), ("", "secrets", "Secret")]),
    ] {
        for (group, plural, kind) in types {
            let server = Server::builder().protobuf().start().await.unwrap();
            let of = || ListerWatcher { encoding, ..lister(group, plural, kind) };
            let resource = of().resource.gvr.group_resource();
            let first = reflect(client(&server.url()).await, of(), config());
            let (shown, requests) = started(&server, &first, &resource).await;
            assert_eq!(requests, [1, 0, 1], "whether this apiserver marks the end of watch-lists is unknown");
            let second = reflect(first.upstream.clone(), of(), config());
            let (assumed, requests) = started(&server, &second, &resource).await;
            assert_eq!((&assumed, requests), (&shown, [1, 0, 2]), "{encoding:?} {plural}");
            let third = reflector_by_list(&server, of()).await;
            let (listed, requests) = started(&server, &third, &resource).await;
            assert_eq!((listed, requests), (shown, [1, 1, 3]), "{encoding:?} {plural}");
        }
    }
}

/// The end of a watch-list that is not marked is not waited for again without a question.
#[tokio::test]
async fn a_watch_list_that_fails_makes_the_next_reflector_ask_again() {
    let server = Server::builder().start().await.unwrap();
    let world = start(&server, config()).await;
    world.follows().await;
    let probes = |resource| server.counts().requests(Verb::Probe, resource);
    server.faults().add(Fault::once(Effect::NoInitialEnd).on("pods"));
    let pods = reflect(world.upstream.clone(), lister("", "pods", "Pod"), config());
    pods.follows().await;
    assert_eq!(probes("pods"), 1, "after the first watch-list");
    assert!(world.upstream.marks_watch_lists(), "the second had its end");
    let services = reflect(world.upstream.clone(), lister("", "services", "Service"), config());
    services.follows().await;
    assert_eq!(probes("services"), 0);
}

/// A limit on the number of objects, and the columns of tables, are kept before the state is read.
#[tokio::test]
async fn a_first_state_that_has_a_limit_is_asked_about() {
    let mut builder = Server::builder();
    for n in 0..3 {
        builder = builder.object(config_map(&format!("m{n}"), "1"));
    }
    let server = builder.start().await.unwrap();
    let world = start(&server, config()).await;
    world.follows().await;
    let (writer, _cache) = cache::new(CacheConfig::new(lister("", "configmaps", "ConfigMap").resource.gvr.clone()));
    let of = lister("", "configmaps", "ConfigMap");
    let reflector = Reflector::new(world.upstream.clone(), of, writer, config()).by_list(true);
    reflector.handle().read_at_most(2);
    assert_eq!(timeout(SOON, reflector.run()).await.unwrap(), ReflectorEnd::Larger(3));
    assert_eq!(server.counts().requests(Verb::List, "configmaps"), 0);
}

#[tokio::test]
async fn refused_watch_lists_become_pages_of_one_moment() {
    let mut builder = Server::builder();
    for i in 0..25 {
        builder = builder.object(config_map(&format!("m{i:02}"), "1"));
    }
    let server = builder.start().await.unwrap();
    server.faults().add(Fault::always(Effect::RefuseWatchList));
    let world = start(&server, ReflectorConfig { page_size: 10, ..config() }).await;
    world.follows().await;
    world.converge(&server).await;
    assert_eq!(server.counts().requests(Verb::List, "configmaps"), 3);
    assert!(world.handle.status().paged);
    server.create(config_map("new", "1")).unwrap();
    world.converge(&server).await;
    // Another reflector of the group does not try a watch-list first.
    let before = world.upstream.metrics().total(RequestVerb::WatchList, None);
    let other = reflect(world.upstream.clone(), lister("", "pods", "Pod"), config());
    other.follows().await;
    assert_eq!(world.upstream.metrics().total(RequestVerb::WatchList, None), before);
}

#[tokio::test]
async fn resumes_after_every_kind_of_end_without_listing() {
    let server = Server::builder().object(config_map("a", "0")).start().await.unwrap();
    let world = start(&server, config()).await;
    world.follows().await;
    let mut watcher = world.watcher();
    let breaks: [&dyn Fn(); 9] = [
        &|| server.faults().end_watches(None),
        &|| server.faults().reset_connections(),
        &|| server.faults().close_connections(),
        &|| _ = server.faults().add(Fault::once(Effect::Cut(Cut::End)).verb(Verb::Watch)),
        &|| _ = server.faults().add(Fault::once(Effect::Cut(Cut::Fin)).verb(Verb::Watch)),
        &|| _ = server.faults().add(Fault::once(Effect::Cut(Cut::Rst)).verb(Verb::Watch)),
        &|| _ = server.faults().add(Fault::once(Effect::Garbage).verb(Verb::Watch)),
        &|| _ = server.faults().add(Fault::once(Effect::Duplicate).verb(Verb::Watch)),
        &|| _ = server.faults().add(Fault::once(Effect::ErrorEvent(500)).verb(Verb::Watch)),
    ];
    for (i, break_it) in breaks.iter().enumerate() {
        break_it();
        let mut sent = Vec::new();
        for j in 0..5 {
            sent.push(server.update(config_map("a", &format!("{i}.{j}"))).unwrap());
        }
        for rv in sent {
            match timeout(SOON, watcher.next()).await.expect("an event") {
                Some(WatcherEvent::Event { kind: EventType::Modified, object, .. }) if object.rv.0 == rv => {}
                other => panic!("break {i}: {other:?} instead of {rv}"),
            }
        }
    }
    let status = world.handle.status();
    assert_eq!(status.relists, 0, "{status:?}");
    assert!(status.garbage_frames >= 2, "{status:?}");
    assert_eq!(server.counts().requests(Verb::List, "configmaps"), 0);
}

#[tokio::test]
async fn a_resource_that_does_not_exist_ends_it() {
    let server = Server::builder().start().await.unwrap();
    let mut world = reflect(client(&server.url()).await, lister("nope.io", "nopes", "Nope"), config());
    let end = timeout(SOON, &mut world.task).await.unwrap().unwrap();
    assert_eq!(end, ReflectorEnd::Gone);
    assert!(!world.cache.is_ready());
}

#[tokio::test]
async fn what_is_forbidden_is_said_and_asked_again() {
    let server = Server::builder().start().await.unwrap();
    server.faults().add(Fault::always(Effect::Answer { code: 403, retry_after: None }).on("configmaps"));
    let world = start(&server, config()).await;
    timeout(SOON, world.handle.refused(false)).await.unwrap();
    assert!(world.handle.is_forbidden());
    assert!(matches!(world.cache.ready(), Readiness::Pending { .. }));
    let asked = server.counts().requests(Verb::Probe, "configmaps");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(server.counts().requests(Verb::Probe, "configmaps"), asked, "not in a circle");
}

#[tokio::test]
async fn waits_as_long_as_a_429_asks() {
    let server = Server::builder().start().await.unwrap();
    server.faults().add(Fault::once(Effect::Answer { code: 429, retry_after: Some(1) }).on("configmaps"));
    let started = Instant::now();
    let world = start(&server, config()).await;
    let status = world.until(|status| status.failing == Some(429)).await;
    assert!(status.last_error.unwrap().contains("429"));
    world.follows().await;
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_replayed_event_is_settled_by_a_whole_state() {
    let server = Server::builder().object(config_map("a", "0")).start().await.unwrap();
    let world = start(&server, config()).await;
    world.follows().await;
    server.faults().add(Fault::once(Effect::Replay).verb(Verb::Watch));
    server.update(config_map("a", "1")).unwrap();
    server.create(config_map("b", "1")).unwrap();
    server.create(config_map("c", "1")).unwrap();
    world.until(|status| status.relists == 1).await;
    world.converge(&server).await;
    assert_eq!(world.handle.status().rewinds, 0);
}

#[tokio::test]
async fn a_stream_that_says_nothing_is_given_up_at_its_end() {
    let server = Server::builder().object(config_map("a", "0")).start().await.unwrap();
    let settings =
        ReflectorConfig { watch_timeout: Duration::from_secs(1), grace: Duration::from_millis(200), ..config() };
    let world = start(&server, settings).await;
    world.follows().await;
    server.faults().add(Fault::once(Effect::Stall).verb(Verb::Watch));
    server.update(config_map("a", "1")).unwrap();
    world.converge(&server).await;
    let status = world.handle.status();
    assert!(status.restarts >= 1 && status.relists == 0, "{status:?}");
}

#[tokio::test]
async fn claims_move_the_cache_and_wrong_ones_do_not() {
    let server = Server::builder().object(config_map("a", "0")).start().await.unwrap();
    let before = server.revision();
    server.create(config_map("b", "0")).unwrap();
    let world = start(&server, config()).await;
    world.follows().await;
    // The first one is not believed, and the second one is.
    let claims = async |[from, to]: [u64; 2], asked| {
        let at = world.cache.resource_version().0;
        let claim = |from, to, asked| Progress { from: ResourceVersion(from), to: ResourceVersion(to), asked };
        world.claims.send(claim(at + from, at + to, asked)).await.unwrap();
        world.claims.send(claim(at, at + 10, Order::now())).await.unwrap();
        let reached = world.cache.wait_for(ResourceVersion(at + 10), Instant::now() + SOON).await.unwrap();
        assert_eq!(reached.rv().0, at + 10);
    };
    // From before a backup was restored.
    let asked = Order::now();
    server.faults().rewind(before);
    world.until(|status| status.rewinds == 1).await;
    world.converge(&server).await;
    claims([0, 50], asked).await;
    // From a revision beyond the cache: events may be missing in between.
    let at = world.cache.resource_version().0;
    claims([5, 50], Order::now()).await;
    sleep(Duration::from_millis(20)).await;
    assert_eq!(world.cache.resource_version().0, at + 10);
}

#[tokio::test]
async fn an_apiserver_that_answers_somebody_else_is_tried_again_at_once() {
    let server = Server::builder().start().await.unwrap();
    server.create(config_map("a", "1")).unwrap();
    let hour = Duration::from_secs(3600);
    let backoff = BackoffConfig { initial: hour, max: hour, ..BackoffConfig::default() };
    let world = start(&server, ReflectorConfig { backoff, ..ReflectorConfig::default() }).await;
    world.follows().await;
    server.faults().add(Fault::always(Effect::Reset));
    server.faults().reset_connections();
    world.until(|status| status.state == "wait").await;
    // Client requests: the first fails, the next succeeds.
    let request = || http::Request::get("/version").body(crate::apiserver::client::empty()).unwrap();
    world.upstream.send(crate::apiserver::Identity::Own, request()).await.err().unwrap();
    server.faults().clear();
    world.upstream.send(crate::apiserver::Identity::Own, request()).await.unwrap();
    world.follows().await;
    server.create(config_map("b", "1")).unwrap();
    world.converge(&server).await;
}

#[tokio::test]
async fn connections_that_break_while_nobody_asks_are_no_outage_to_wait_for() {
    let server = Server::builder().start().await.unwrap();
    let hour = Duration::from_secs(3600);
    let backoff = BackoffConfig { initial: hour, max: hour, ..BackoffConfig::default() };
    let world = start(&server, ReflectorConfig { backoff, ..ReflectorConfig::default() }).await;
    world.follows().await;
    // Hundreds of reflectors wait for their turn before this one.
    let queue = world.upstream.retries().queue(&Resource::simple("", "configmaps", "ConfigMap"));
    let turns = async move { futures_util::future::join_all((0..600).map(|_| queue.turn())).await };
    let turns = spawn("turns", turns);
    sleep(Duration::from_millis(10)).await;
    server.faults().reset_connections();
    world.until(|status| status.restarts == 1 && status.state == "follow").await;
    turns.abort();
    assert!(world.upstream.is_reachable());
}
