use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::cache::{WatchSpec, WatchStart};
use crate::http::testing::{self, FIRST};
use crate::meta::{EventType, Scope};
use crate::selector::{CompiledFields, LabelSelector, Predicate};

const SIZE: usize = 100_000;

struct World {
    of: testing::World,
    rv: u64,
}

fn object(name: usize, rv: u64) -> Arc<Object> {
    let item = testing::item(name, SIZE);
    testing::parse(&item.replace(&format!("\"{}\"}}", name + 1), &format!("\"{rv}\"}}")))
}

impl World {
    async fn new(objects: usize) -> Self {
        Self::of(testing::objects(objects, SIZE)).await
    }

    async fn of(objects: Vec<Arc<Object>>) -> Self {
        Self { of: testing::World::new(objects).await, rv: FIRST as u64 }
    }

    /// A conflated watch of what comes from now on.
    fn watch(&self, ledger: &Ledger) -> Feed {
        self.watch_from(WatchStart::Now, ledger)
    }

    fn watch_from(&self, start: WatchStart, ledger: &Ledger) -> Feed {
        self.watch_of(Predicate::everything(), start, ledger)
    }

    fn watch_of(&self, predicate: Predicate, start: WatchStart, ledger: &Ledger) -> Feed {
        let (is_snapshot, deadline) = (start == WatchStart::State, Instant::now() + Duration::from_secs(600));
        let spec = WatchSpec { predicate, start, bookmarks: true, initial_end: true, deadline };
        Feed::Conflated(Conflated::start(self.of.cache.watch(spec).unwrap(), is_snapshot, ledger, &Arc::default()))
    }

    async fn apply(&mut self, kind: EventType, name: usize) {
        self.rv += 1;
        self.of.writer.apply(kind, Arc::into_inner(object(name, self.rv)).unwrap()).await.unwrap();
    }
}

/// Waits until nothing changes any more. Time stands still while a task has something to do.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

async fn next(feed: &mut Feed) -> Result<Item, EndReason> {
    let next = std::future::poll_fn(|cx| feed.poll_next(cx));
    tokio::time::timeout(Duration::from_secs(60), next).await.expect("the next item, or the end")
}

#[tokio::test(start_paused = true)]
async fn what_only_a_watch_holds_is_in_the_account() {
    let ledger = Ledger::new(80 * SIZE, Pressure::default());
    let mut world = World::new(10).await;
    let mut feed = world.watch(&ledger);
    for name in 0..10 {
        world.apply(EventType::Modified, name).await;
    }
    settled().await;
    assert!(ledger.used() < 10 * 1024, "{}: the cache holds the objects", ledger.used());
    for name in 0..4 {
        world.apply(EventType::Deleted, name).await;
    }
    settled().await;
    assert!((4 * SIZE..5 * SIZE).contains(&ledger.used()), "{}", ledger.used());
    // An object that comes and goes before its consumer looks is held twice.
    world.apply(EventType::Added, 20).await;
    world.apply(EventType::Deleted, 20).await;
    settled().await;
    assert!((6 * SIZE..7 * SIZE).contains(&ledger.used()), "{}", ledger.used());
    for _ in 0..12 {
        next(&mut feed).await.unwrap();
    }
    assert_eq!(ledger.used(), 0);
    assert!(std::future::poll_fn(|cx| feed.poll_next(cx)).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_finds_no_memory_is_too_slow() {
    let ledger = Ledger::new(32 * SIZE, Pressure::default());
    let mut world = World::new(20).await;
    let (mut slow, mut other) = (world.watch(&ledger), world.watch(&ledger));
    for name in 0..20 {
        world.apply(EventType::Deleted, name).await;
        settled().await;
        assert!(ledger.used() <= 6 * SIZE, "{}", ledger.used());
        next(&mut other).await.unwrap();
    }
    assert_eq!(next(&mut slow).await.unwrap_err(), EndReason::TooSlow);
    assert_eq!(ledger.used(), 0, "and what it held is given back");
    world.apply(EventType::Added, 50).await;
    next(&mut other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_pending_has_a_bound_by_number_and_by_bytes() {
    let (world, some) = (World::new(0).await, object(0, 1));
    for (level, changes, size, fits) in [
        (Level::Calm, MAX_PENDING, 1, true),
        (Level::Calm, MAX_PENDING + 1, 1, false),
        (Level::Calm, 1, MAX_PENDING_BYTES, true),
        (Level::Calm, 1, MAX_PENDING_BYTES + 1, false),
        (Level::Tight, 1, SHORT_PENDING_BYTES + 1, true),
        (Level::Short, 1, SHORT_PENDING_BYTES, true),
        (Level::Short, 1, SHORT_PENDING_BYTES + 1, false),
    ] {
        let Feed::Conflated(conflated) = world.watch(&Ledger::default()) else { panic!("it is not conflated") };
        let mut pending = conflated.shared.pending.lock();
        for name in 0..changes {
            let (value, rv) = ((Arc::clone(&some), None, None), ResourceVersion(FIRST as u64 + 1));
            let change = Change { kind: EventType::Modified, value, rv };
            pending.conflator.push(ObjectKey::new("a", &name.to_string()), change, size);
        }
        assert_eq!(pending.fits(level), fits, "{level:?}: {changes} of {size} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn so_much_of_a_snapshot_is_taken_before_its_consumer_asks() {
    for (objects, ahead) in [
        (SNAPSHOT_AHEAD - 1, SNAPSHOT_AHEAD - 1),
        (SNAPSHOT_AHEAD, SNAPSHOT_AHEAD),
        (SNAPSHOT_AHEAD + 1, SNAPSHOT_AHEAD),
        (2 * SNAPSHOT_AHEAD, SNAPSHOT_AHEAD),
    ] {
        let world = World::of(testing::objects(objects, 1)).await;
        let mut feed = world.watch_from(WatchStart::State, &Ledger::default());
        let (mut taken, mut most) = (0, 0);
        loop {
            // Time stands still while the task has something to do.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let Feed::Conflated(conflated) = &feed else { panic!("it is not conflated") };
            most = most.max(conflated.shared.pending.lock().conflator.len());
            match next(&mut feed).await.unwrap().event {
                WatcherEvent::Bookmark { initial_end: true, .. } => break,
                _ => taken += 1,
            }
        }
        assert_eq!((taken, most), (objects, ahead));
    }
}

/// The task may be in the middle of a turn when its watch ends.
#[tokio::test(start_paused = true)]
async fn what_comes_after_the_end_is_not_taken() {
    let mut world = World::new(2).await;
    let mut feed = world.watch(&Ledger::default());
    world.apply(EventType::Modified, 0).await;
    settled().await;
    let Feed::Conflated(conflated) = &feed else { panic!("it merges") };
    conflated.shared.over(EndReason::Drained);
    let rv = ResourceVersion(world.rv + 1);
    let late = WatcherEvent::Event { kind: EventType::Modified, object: object(1, rv.get()), rv: None };
    conflated.shared.with(|pending| pending.take(late, rv, None));
    conflated.shared.over(EndReason::TooSlow);
    assert_eq!(next(&mut feed).await.unwrap_err(), EndReason::Drained);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_gives_up_what_it_holds_when_memory_becomes_short() {
    let pressure = Pressure::default();
    let ledger = Ledger::new(1 << 30, pressure.clone());
    let mut world = World::new(20).await;
    let (mut large, mut small) = (world.watch(&ledger), world.watch(&ledger));
    for name in 0..20 {
        world.apply(EventType::Modified, name).await;
        settled().await;
        next(&mut small).await.unwrap();
    }
    pressure.set(Level::Tight);
    settled().await;
    assert!(ledger.used() > 0, "it waits");
    // No event comes after this.
    pressure.set(Level::Short);
    settled().await;
    assert_eq!(ledger.used(), 0);
    assert_eq!(next(&mut large).await.unwrap_err(), EndReason::TooSlow);
    assert!(std::future::poll_fn(|cx| small.poll_next(cx)).now_or_never().is_none(), "one without anything goes on");
}

#[tokio::test(start_paused = true)]
async fn small_changes_are_no_reason_to_end_a_watch() {
    let ledger = Ledger::new(32 * SIZE, Pressure::default());
    let mut world = World::new(20).await;
    let mut feed = world.watch(&ledger);
    let _all: Vec<_> = std::iter::from_fn(|| ledger.reserve(SIZE).ok()).collect();
    for name in 0..20 {
        world.apply(EventType::Modified, name).await;
    }
    settled().await;
    assert_eq!(ledger.refused(), 1, "nobody has to make room for them");
    for _ in 0..20 {
        next(&mut feed).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_waits_for_its_consumer_if_there_is_no_memory() {
    const OBJECTS: usize = 200;
    let full = Ledger::new(32 * SIZE, Pressure::default());
    let held: Vec<_> = std::iter::from_fn(|| full.reserve(SIZE).ok()).collect();
    assert_eq!(held.len(), 32);
    let short = Ledger::default();
    short.pressure().set(Level::Short);
    let small = Ledger::new(64 << 10, Pressure::default());
    let mut world = World::new(OBJECTS).await;
    for ledger in [full, short, small] {
        let refused = ledger.refused();
        let mut feed = world.watch_from(WatchStart::State, &ledger);
        settled().await;
        // Events during the snapshot are kept back, too.
        for name in 0..100 {
            world.apply(EventType::Modified, name).await;
        }
        let mut objects = 0;
        loop {
            settled().await;
            let Feed::Conflated(conflated) = &feed else { panic!("it is not conflated") };
            let ahead = conflated.shared.pending.lock().conflator.len();
            assert!(ahead <= LITTLE / 256 + 1, "{ahead}");
            match next(&mut feed).await.unwrap().event {
                WatcherEvent::Bookmark { initial_end: true, .. } => break,
                _ => objects += 1,
            }
        }
        assert_eq!((objects, ledger.refused()), (OBJECTS, refused));
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_nobody_takes_is_given_up_while_memory_is_short() {
    let pressure = Pressure::default();
    let ledger = Ledger::new(64 << 10, pressure.clone());
    let world = World::new(200).await;
    let mut feed = world.watch_from(WatchStart::State, &ledger);
    tokio::time::sleep(2 * HURRY).await;
    assert!(next(&mut feed).await.is_ok() && ledger.used() > 0, "it waits for its consumer");
    pressure.set(Level::Short);
    tokio::time::sleep(2 * HURRY).await;
    assert_eq!((next(&mut feed).await.unwrap_err(), ledger.used()), (EndReason::TooSlow, 0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_before_its_snapshot_was_taken_sends_no_bookmark() {
    let mut world = World::new(2).await;
    let mut feed = world.watch_from(WatchStart::State, &Ledger::default());
    settled().await;
    world.apply(EventType::Modified, 0).await;
    // A bookmark is pending by now.
    tokio::time::sleep(Duration::from_secs(61)).await;
    feed.end();
    assert_eq!(next(&mut feed).await.unwrap_err(), EndReason::Drained);
}

#[tokio::test]
async fn others_run_while_it_looks_for_few_objects() {
    const OBJECTS: usize = 20_000;
    let labelled = |n: usize| {
        let labels = if n.is_multiple_of(100) { r#""labels":{"a":"b"},"uid""# } else { r#""uid""# };
        testing::parse(&testing::item(n, 1).replace(r#""uid""#, labels))
    };
    let world = World::of((0..OBJECTS).map(labelled).collect()).await;
    let labels = LabelSelector::parse("a=b").unwrap();
    let predicate = Predicate::new(Scope::default(), labels, CompiledFields::default());
    let mut feed = world.watch_of(predicate, WatchStart::State, &Ledger::default());
    let (mut objects, mut waits) = (0, 0);
    loop {
        let next = std::future::poll_fn(|cx| {
            let next = feed.poll_next(cx);
            waits += usize::from(next.is_pending());
            next
        });
        if matches!(next.await.unwrap().event, WatcherEvent::Bookmark { .. }) {
            break;
        }
        objects += 1;
    }
    assert_eq!(objects, OBJECTS / 100);
    assert!(waits >= OBJECTS / 2048, "its consumer had {waits} turns");
}
