//! Tests on a paused clock, with a scripted store.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::testing::{FakeServer, answer};
use crate::cache::Writer;
use crate::informer::factory::testing::{linked, nowhere, scripted, scripted_at};
use crate::lifecycle::spawn;
use crate::meta::{AttributesBuilder, EventType, Gvr, Object, ObjectKey, Origin, Raw, Resource};
use crate::selector::LabelSelector;
use crate::upstream::SharedStore;
use crate::upstream::script::Script;

/// How long a question takes.
const TAKES: Duration = Duration::from_millis(4);
const MAX_AGE: Duration = Duration::from_millis(100);

/// The request for the store's revision.
const REVISION: &str = "/api/v1/namespaces/default/configmaps?limit=1&fieldSelector=metadata.name%3D-";

/// The objects `a/x@5` and `b/selected@7`. They are listed at 10, and the store still has them.
const OBJECTS: [(&str, &str, u64); 2] = [("a", "x", 5), ("b", "selected", 7)];

struct World {
    script: Script,
    informer: Arc<Informer>,
    writer: Writer,
}

fn rv(n: u64) -> ResourceVersion {
    ResourceVersion(n)
}

fn object(namespace: &str, name: &str, at: u64) -> Object {
    let mut attributes = AttributesBuilder::new("u");
    attributes.label("chosen", if name == "selected" { "yes" } else { "no" });
    let raw = Raw::new(Bytes::from_static(b"{}"), 0..0, 0..0);
    Object::new(ObjectKey::new(namespace, name), rv(at), attributes.build(), raw)
}

fn objects() -> Vec<Arc<Object>> {
    OBJECTS.map(|(namespace, name, at)| Arc::new(object(namespace, name, at))).into()
}

fn selection() -> Predicate {
    Predicate::new(
        Scope::all(),
        LabelSelector::parse("chosen=yes").unwrap(),
        crate::selector::CompiledFields::default(),
    )
}

/// A list of everything in the newest state, which may be forwarded.
fn everything() -> Need<'static> {
    static EVERYTHING: LazyLock<Predicate> = LazyLock::new(Predicate::everything);
    Need {
        freshness: Freshness::Consistent,
        shown: ResourceVersion::ZERO,
        unknown: false,
        verb: Verb::List,
        predicate: &EVERYTHING,
        selectors: None,
        only_metadata: false,
        gzip: false,
        limit: None,
        may_forward: true,
        can_forward: true,
        max_age: Duration::ZERO,
        arrived: Asked::now(),
        deadline: Instant::now() + Duration::from_secs(3),
    }
}

impl World {
    async fn new() -> Self {
        Self::of(None).await
    }

    /// A world whose resource is kept in this store.
    async fn of(store: Option<&Arc<SharedStore>>) -> Self {
        Self::at(&nowhere().await, store).await
    }

    async fn at(upstream: &Upstream, store: Option<&Arc<SharedStore>>) -> Self {
        let script = Script::default();
        let (informer, mut writer) = scripted_at(upstream, &script, None, store.cloned());
        script.takes(TAKES);
        script.store(10, &OBJECTS);
        writer.replace(objects(), rv(10)).await.unwrap();
        Self { script, informer, writer }
    }

    /// A world whose store changes only in other resources.
    async fn quiet() -> Self {
        Self::new().await.silent()
    }

    fn silent(self) -> Self {
        (0..10).for_each(|_| self.informer.probe.learn(false));
        self.informer.probe.heard(rv(11));
        self
    }

    /// A task that lists, with the revision that it gets.
    fn reader(&self) -> tokio::task::JoinHandle<ResourceVersion> {
        let informer = self.informer.clone();
        spawn("reader", async move { informer.fresh(&everything()).await.unwrap().snapshot.rv() })
    }

    /// The result of a read, and how many milliseconds it took.
    async fn read(&self, need: &Need<'_>) -> (Result<u64, NotFresh>, u128) {
        let begun = Instant::now();
        let fresh = self.informer.fresh(need).await;
        (fresh.map(|fresh| fresh.snapshot.rv().get()), begun.elapsed().as_millis())
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_moves_now_and_then_is_mostly_asked_for_its_revision() {
    let world = World::new().await;
    let digests = async |at: u64| {
        world.script.store(at, &OBJECTS);
        for _ in 0..20 {
            assert_eq!(world.read(&everything()).await.0, Ok(at));
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        world.script.asked().iter().filter(|path| path.ends_with("limit=66")).count()
    };
    for n in 0..10 {
        let digests = digests(20 + n).await;
        assert!(digests <= 5, "{digests} of 20 reads after move {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_on_its_way_is_waited_for() {
    let mut world = World::new().await;
    world.script.store(12, &[("a", "x", 12), OBJECTS[1]]);
    let read = world.reader();
    tokio::time::sleep(Duration::from_millis(7)).await;
    world.writer.apply(EventType::Modified, object("a", "x", 12)).await.unwrap();
    assert_eq!(read.await.unwrap(), rv(12));
    assert_eq!(world.script.asked(), [REVISION]);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_collection_is_compared_once_for_all_who_wait() {
    let world = World::quiet().await;
    world.script.store(20, &OBJECTS);
    let reads: Vec<_> = (0..50).map(|_| world.reader()).collect();
    for read in reads {
        assert_eq!(read.await.unwrap(), rv(20));
    }
    // A read that arrives while a question is in flight shares the next one.
    assert_eq!(world.script.asked(), ["/api/v1/configmaps?limit=66"; 2]);
    // The state is now confirmed for readers with any freshness.
    let any = Need { freshness: Freshness::Any, ..everything() };
    assert_eq!(world.read(&any).await, (Ok(20), 0));
    assert_eq!(world.informer.cache.resource_version(), rv(10), "it is no progress of the stream");
}

#[tokio::test(start_paused = true)]
async fn a_selection_is_compared_alone() {
    let mut world = World::quiet().await;
    // Too many objects to be compared for one read.
    for n in 0..200 {
        world.writer.apply(EventType::Added, object("a", &format!("y{n}"), 11 + n)).await.unwrap();
    }
    // An object that is not selected has changed, and its event is in flight.
    world.script.store(400, &[("a", "x", 300), OBJECTS[1]]);
    world.informer.probe.heard(rv(300));
    let selection = selection();
    let need = Need { predicate: &selection, selectors: Some(("chosen=yes", "")), ..everything() };
    assert_eq!(world.read(&need).await, (Ok(400), 4));
    assert_eq!(world.script.asked(), ["/api/v1/configmaps?limit=65&labelSelector=chosen%3Dyes"]);
    assert_eq!(world.informer.cache.newest(), rv(210), "nothing is known of the rest");
    // A paged read needs a state that is still there for the next page.
    let page = Need { limit: Some(0), ..need };
    assert_eq!(world.read(&page).await.0, Err(NotFresh::Dearer));
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_waited_for_and_then_left_to_the_apiserver() {
    let mut world = World::quiet().await;
    world.script.store(12, &[("a", "x", 12), OBJECTS[1]]);
    assert_eq!(world.read(&everything()).await, (Err(NotFresh::Late), 104));
    let read = world.reader();
    tokio::time::sleep(Duration::from_millis(54)).await;
    world.writer.apply(EventType::Modified, object("a", "x", 12)).await.unwrap();
    assert_eq!(read.await.unwrap(), rv(12));
}

#[tokio::test(start_paused = true)]
async fn a_large_digest_that_was_late_is_not_waited_for_again() {
    let mut world = World::quiet().await;
    let names: Vec<_> = (0..6000).map(|n| format!("y{n}")).collect();
    let objects = names.iter().map(|name| Arc::new(object("a", name, 12))).collect();
    world.writer.replace(objects, rv(20)).await.unwrap();
    world.script.store(30, &names.iter().map(|name| ("a", &**name, 12)).collect::<Vec<_>>());
    world.informer.probe.heard(rv(30));
    world.script.takes(Duration::from_secs(60));
    assert_eq!(world.read(&everything()).await, (Err(NotFresh::Late), 3000));
    assert_eq!(world.script.asked(), ["/api/v1/configmaps?limit=6064"]);
    assert_eq!(world.read(&everything()).await, (Err(NotFresh::Late), 0));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.read(&everything()).await, (Err(NotFresh::Dearer), 0));
    assert!(world.script.asked().is_empty());
    // Who cannot be forwarded waits all the same.
    let local = Need { may_forward: false, can_forward: false, ..everything() };
    assert_eq!(world.read(&local).await, (Err(NotFresh::Late), 3000));
    world.script.takes(TAKES);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.read(&everything()).await.0, Ok(30));
    assert!(!world.informer.probe.is_late());
}

#[tokio::test(start_paused = true)]
async fn a_small_page_is_not_worth_a_digest_of_everything() {
    let mut world = World::quiet().await;
    let names: Vec<_> = (0..100).map(|n| format!("y{n:02}")).collect();
    let objects = names.iter().map(|name| Arc::new(object("a", name, 12))).collect();
    world.writer.replace(objects, rv(20)).await.unwrap();
    world.script.store(30, &names.iter().map(|name| ("a", &**name, 12)).collect::<Vec<_>>());
    world.informer.probe.heard(rv(30));
    assert_eq!(world.read(&Need { limit: Some(1), ..everything() }).await, (Err(NotFresh::Dearer), 0));
    assert_eq!(world.read(&Need { limit: Some(10), ..everything() }).await.0, Ok(30));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_beyond_the_deadline() {
    let world = World::new().await;
    world.script.takes(Duration::from_secs(60));
    assert_eq!(world.read(&everything()).await, (Err(NotFresh::Late), 3000));
    assert_eq!(world.informer.revision(Verb::Watch, Instant::now() + TAKES).await, Err(NotFresh::Late));
}

#[tokio::test(start_paused = true)]
async fn a_word_of_some_age_serves_many_and_is_kept_warm() {
    let world = World::new().await;
    let mut slowest = 0;
    for _ in 0..200 {
        let need = Need { max_age: MAX_AGE, ..everything() };
        let (read, took) = world.read(&need).await;
        assert_eq!(read, Ok(10));
        slowest = slowest.max(took);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = world.script.asked().len();
    assert!((9..=13).contains(&asked), "asked {asked} times in a second");
    assert_eq!(slowest, 4, "only the first one waits");
    // An old answer about the store's revision does not cover a later write.
    world.script.store(30, &OBJECTS);
    let need = Need { max_age: MAX_AGE, shown: rv(30), ..everything() };
    assert_eq!(world.read(&need).await.0, Ok(30));
}

#[tokio::test(start_paused = true)]
async fn resources_of_one_store_share_its_revision() {
    let store = SharedStore::known(nowhere().await);
    let worlds = [World::of(Some(&store)).await, World::of(Some(&store)).await, World::of(Some(&store)).await];
    let read_all = async || {
        for reader in worlds.each_ref().map(World::reader) {
            assert_eq!(reader.await.unwrap(), worlds[0].informer.cache.newest());
        }
        worlds.each_ref().map(|world| world.script.asked())
    };
    // One of the first two questions was sent before the other reads arrived.
    let asked = read_all().await.concat();
    assert!(!asked.is_empty() && asked.len() <= 2, "{asked:?}");
    // The store moves, but their objects do not change: each one is compared.
    for world in &worlds {
        world.script.store(15, &OBJECTS);
        (0..10).for_each(|_| world.informer.probe.learn(false));
    }
    for world in &worlds {
        assert_eq!(world.read(&everything()).await.0, Ok(15));
    }
    let asked = worlds.each_ref().map(|world| world.script.asked()).concat();
    assert_eq!(
        asked.iter().filter(|path| **path == REVISION).count(),
        1,
        "the others know that it has moved: {asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn resources_of_several_stores_are_found_out() {
    let store = SharedStore::known(nowhere().await);
    let (mut ours, theirs) = (World::of(Some(&store)).await, World::of(Some(&store)).await);
    theirs.script.store(9, &[]);
    // Our resource is at 12 already, and the other store is at 9: a question about the other resource would prove
    // nothing.
    ours.script.store(12, &[("a", "x", 12), OBJECTS[1]]);
    ours.writer.apply(EventType::Modified, object("a", "x", 12)).await.unwrap();
    let them = theirs.informer.clone();
    let other = spawn("reader", async move { them.revision(Verb::List, Instant::now() + TAKES * 2).await });
    tokio::task::yield_now().await;
    tokio::time::sleep(TAKES / 2).await;
    assert_eq!(ours.read(&everything()).await.0, Ok(12));
    assert_eq!(other.await.unwrap(), Ok(rv(9)));
    assert_eq!(ours.script.asked().last().map(String::as_str), Some(REVISION));
    assert_eq!(store.last_word(), None, "nothing is shared any more");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_restored_or_never_there_is_told() {
    let world = World::new().await;
    let future = Need { freshness: Freshness::NotOlderThan(rv(99)), may_forward: false, ..everything() };
    assert_eq!(world.read(&future).await.0, Err(NotFresh::TooLarge { want: rv(99) }));
    let shown = Need { shown: rv(50), ..everything() };
    assert_eq!(world.read(&shown).await.0, Err(NotFresh::Rewound { now: rv(10) }));
    world.script.store(9, &[]);
    assert_eq!(world.read(&everything()).await.0, Err(NotFresh::Rewound { now: rv(9) }));
}

#[tokio::test(start_paused = true)]
async fn an_informer_of_another_scope_has_shown_what_it_has_shown() {
    let mut world = World::new().await;
    let (part, mut part_writer) = scripted(&world.script, Some("a"), None).await;
    part_writer.replace(vec![Arc::new(object("a", "x", 5))], rv(10)).await.unwrap();
    let all = world.informer.clone();
    all.set_others(Vec::new(), vec![Arc::downgrade(&part)]);
    part.set_others(Vec::new(), vec![Arc::downgrade(&all)]);
    let any = async |informer: &Arc<Informer>| {
        let begun = Instant::now();
        let need = Need { freshness: Freshness::Any, may_forward: false, ..everything() };
        (informer.fresh(&need).await.unwrap().snapshot.rv(), begun.elapsed().as_millis())
    };
    // Changes of other namespaces, or the lack of them, do not concern the informer of this namespace.
    world.writer.apply(EventType::Modified, object("b", "selected", 12)).await.unwrap();
    world.writer.progress(rv(13));
    assert_eq!(any(&part).await, (rv(10), 0));
    part_writer.progress(rv(20));
    assert_eq!(any(&all).await, (rv(13), 0));

    for (ahead, behind) in [(21, &part), (23, &all)] {
        let changed = || object("a", "x", ahead);
        let (first, second) = match ahead {
            21 => (&mut world.writer, &mut part_writer),
            _ => (&mut part_writer, &mut world.writer),
        };
        first.apply(EventType::Modified, changed()).await.unwrap();
        let arrives = async {
            tokio::time::sleep(Duration::from_millis(7)).await;
            second.apply(EventType::Modified, changed()).await.unwrap();
        };
        let (read, ()) = tokio::join!(any(behind), arrives);
        assert_eq!(read, (rv(ahead), 7));
    }
    assert!(world.script.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_digest_for_which_there_is_no_memory_is_not_read() {
    let world = World::quiet().await;
    world.script.store(20, &OBJECTS);
    let budget = &world.informer.cache.config().budget;
    let rest = budget.limit() - budget.limit() / 10 - budget.used();
    let others = budget.lend(rest - 1000).unwrap();
    assert_eq!(world.read(&everything()).await.0, Err(NotFresh::Late));
    assert!(world.script.asked().is_empty());
    drop(others);
    assert_eq!(world.read(&everything()).await.0, Ok(20));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hardly_waits_does_not_keep_others_from_waiting() {
    let world = World::quiet().await;
    world.script.store(12, &[OBJECTS[0], ("b", "selected", 12)]);
    let any = || Need { freshness: Freshness::Any, shown: rv(12), may_forward: false, ..everything() };
    for _ in 0..30 {
        let cut = Need { deadline: Instant::now() + Duration::from_millis(100), ..any() };
        assert_eq!(world.read(&cut).await.0, Err(NotFresh::Late));
    }
    assert!(!world.informer.is_stalled());
    assert_eq!(world.read(&any()).await.0, Err(NotFresh::Late));
    assert!(world.informer.is_stalled());
}

#[tokio::test(start_paused = true)]
async fn who_reads_after_a_wait_in_vain_does_not_wait_until_the_stream_moves() {
    // It is there, so that it is not away.
    let server = FakeServer::plain(|_, _| std::future::ready(answer(500, "{}"))).await;
    let upstream = Upstream::from_config(server.config()).await.unwrap();
    let mut world = World::at(&upstream, None).await.silent();
    // The store has a change that does not come.
    world.script.store(12, &[OBJECTS[0], ("b", "selected", 12)]);
    let any = || Need { freshness: Freshness::Any, shown: rv(12), may_forward: false, ..everything() };
    assert_eq!(world.read(&any()).await, (Err(NotFresh::Late), 3000));
    world.script.asked();
    for need in [any(), everything(), Need { verb: Verb::Get, ..any() }] {
        let (read, took) = world.read(&need).await;
        assert_eq!(read, Err(NotFresh::Late));
        assert!(took <= MOMENT.as_millis(), "{took} ms");
    }
    assert!(world.script.asked().is_empty(), "nor does it ask");
    // What the cache has is served, and who cannot be forwarded tries.
    assert_eq!(world.read(&Need { shown: rv(10), ..any() }).await, (Ok(10), 0));
    assert_eq!(world.read(&Need { can_forward: false, ..any() }).await.1, 3000);
    world.writer.apply(EventType::Modified, object("b", "selected", 12)).await.unwrap();
    assert_eq!(world.read(&any()).await, (Ok(12), 0));
    assert_eq!(world.read(&everything()).await.0, Ok(12));
}

/// The client has deleted an object, and the answer did not tell at which revision.
#[tokio::test(start_paused = true)]
async fn an_earlier_word_does_not_cover_a_write_at_an_unknown_revision() {
    // The second word is of the same instant.
    for (max_age, takes) in [(MAX_AGE, TAKES), (Duration::ZERO, Duration::ZERO)] {
        let mut world = World::new().await;
        world.script.takes(takes);
        let bounded = Need { max_age, ..everything() };
        assert_eq!(world.read(&bounded).await.0, Ok(10));
        world.script.store(20, &OBJECTS[..1]);
        let informer = world.informer.clone();
        let read = spawn("reader", async move {
            let need = Need { max_age, unknown: true, ..everything() };
            let fresh = informer.fresh(&need).await.unwrap();
            (fresh.snapshot.rv(), fresh.snapshot.len(), fresh.store)
        });
        tokio::time::sleep(Duration::from_millis(7)).await;
        world.writer.apply(EventType::Deleted, object("b", "selected", 20)).await.unwrap();
        assert_eq!(read.await.unwrap(), (rv(20), 1, Some(rv(20))), "the store was asked after the write");
        world.script.asked();
        assert_eq!(world.read(&bounded).await.0, Ok(20));
        assert_eq!(world.script.asked().is_empty(), max_age == MAX_AGE, "that answer is good for others for a while");
    }
}

#[tokio::test(start_paused = true)]
async fn a_word_of_some_age_does_not_tell_that_a_revision_is_too_large() {
    let world = World::new().await;
    let at_least =
        |n| Need { max_age: MAX_AGE, freshness: Freshness::NotOlderThan(rv(n)), may_forward: false, ..everything() };
    assert_eq!(world.read(&Need { max_age: MAX_AGE, ..everything() }).await.0, Ok(10));
    assert_eq!(world.read(&at_least(25)).await.0, Err(NotFresh::TooLarge { want: rv(25) }), "it is asked, and says so");
    world.script.store(30, &OBJECTS);
    assert_eq!(world.read(&at_least(25)).await.0, Ok(30));
    world.script.store(40, &OBJECTS);
    assert_eq!(world.read(&at_least(31)).await.0, Ok(40));
}

fn custom() -> Origin {
    Origin::Custom { selectable: Arc::default(), columns: Arc::default(), definition: "".into() }
}

fn widgets(version: &str, origin: Origin) -> Resource {
    let gvr = Gvr::new("example.com", version, "widgets");
    Resource { gvr, origin, ..Resource::simple("example.com", "widgets", "Widget") }
}

/// One of v2 is at 50, and has last changed at 40. That object has another label in v1.
#[tokio::test(start_paused = true)]
async fn another_version_tells_what_its_store_and_its_selection_tell() {
    for (origin, labels, newest) in [(custom(), "", 50), (custom(), "chosen=yes", 40), (Origin::Unknown, "", 0)] {
        let resources = [(widgets("v1", custom()), labels), (widgets("v2", origin), labels)];
        let [(ours, mut our_writer), (theirs, mut their_writer)] = linked(&Script::default(), resources).await;
        our_writer.replace(Vec::new(), rv(30)).await.unwrap();
        their_writer.replace(Vec::new(), rv(10)).await.unwrap();
        their_writer.apply(EventType::Added, object("a", "x", 40)).await.unwrap();
        their_writer.progress(rv(50));
        assert_eq!(ours.newest_elsewhere(), rv(newest));
        let (key, origin) = (&ours.key, &ours.resource.origin);
        assert_eq!(theirs.is_sibling_of(key, origin), newest == 50, "whether they share claims and questions");
        assert_eq!(theirs.is_neighbour_of(key, origin), newest == 40);
    }
}

/// A webhook adds the label in v2 only, and the event of the object is in flight there.
#[tokio::test(start_paused = true)]
async fn what_one_version_selects_says_nothing_of_another() {
    let script = Script::default();
    let resources = ["v1", "v2"].map(|version| (widgets(version, custom()), ""));
    let [(first, mut first_writer), (second, mut second_writer)] = linked(&script, resources).await;
    for writer in [&mut first_writer, &mut second_writer] {
        writer.replace(vec![Arc::new(object("a", "x", 5))], rv(100)).await.unwrap();
    }
    script.store(150, &OBJECTS[..1]);
    let mut selection = selection();
    selection.scope.namespace = Some("a".into());
    let need = Need { predicate: &selection, selectors: Some(("chosen=yes", "")), ..everything() };
    for (extent, is_shared) in [(Extent::Selection, false), (Extent::Namespace, true)] {
        assert_eq!(first.digest(&need, extent, Asked::now()).await.map(|word| word.rv), Some(rv(150)));
        let settled = async |informer: &Arc<Informer>| {
            let part = extent.of(informer, &need);
            informer.probe.settled(&informer.cache, part.as_ref(), rv(150)).await.is_some()
        };
        assert_eq!([settled(&first).await, settled(&second).await], [true, is_shared], "{extent:?}");
    }
}
