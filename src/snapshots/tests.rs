//! What is loaded is what was kept.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::testing::*;
use super::*;
use crate::cache::{Recorded, WatchSpec, WatchStart, WatcherEvent};
use crate::meta::{AttributesBuilder, EventType, Object, ObjectKey, Raw, ResourceVersion, WatchCacheEvent};
use crate::packing::PackingForm;
use crate::selector::Predicate;

/// Everything that a watch from the beginning of the window gets.
async fn window(cache: &WatchCache) -> Vec<String> {
    let dispatcher = crate::lifecycle::spawn("dispatcher", cache.run_dispatcher());
    let start = WatchStart::After(ResourceVersion(1000));
    let deadline = Instant::now() + Duration::from_secs(600);
    let spec = WatchSpec { predicate: Predicate::everything(), start, bookmarks: false, initial_end: false, deadline };
    let mut watcher = cache.watch(spec).unwrap();
    let mut events = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(1), watcher.next()).await {
        if let WatcherEvent::Event { kind, object, rv } = event {
            let raw = object.raw().unwrap();
            events.push(format!("{kind:?} {}@{} {rv:?} {:?}", object.key, object.rv, raw.item()));
        }
    }
    drop(dispatcher);
    events
}

#[tokio::test(start_paused = true)]
async fn a_state_and_its_window_come_back() {
    for (form, again) in [
        (PackingForm::Plain, PackingForm::Plain),
        (PackingForm::Packed, PackingForm::Packed),
        (PackingForm::Packed, PackingForm::Plain),
        (PackingForm::Plain, PackingForm::Packed),
    ] {
        for key in [None, Some(Key::parse(&"5a".repeat(32)).unwrap())] {
            let (storage, mut world) = (Memory::default(), World::new(300, form).await);
            let packer = crate::lifecycle::spawn("packer", world.cache.run_packer());
            tokio::time::sleep(Duration::from_secs(10)).await;
            while form == PackingForm::Packed && world.cache.config().packing.stats().objects == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            world.change(40).await;
            let snapshots = snapshots(&storage, key.clone());
            let (mut journal, mut recorder) = begin(&snapshots, &identity(), &world.cache).unwrap();
            world.change(40).await;
            world.expire().await;
            journal.append(&all(&mut recorder)).unwrap();
            let (_writer, loaded) = load(&snapshots, identity(), again).await.unwrap();
            assert_eq!(loaded.resource_version(), world.cache.resource_version());
            assert_eq!(state(&loaded), state(&world.cache));
            assert_eq!(loaded.form(), world.cache.form());
            assert_eq!(loaded.bookmark_template(), world.cache.bookmark_template());
            assert_eq!(loaded.window_floor(), world.cache.window_floor());
            assert_eq!(window(&loaded).await, window(&world.cache).await);
            let plain = String::from_utf8_lossy(&storage.inner.lock().files[&identity().file_name()]).into_owned();
            assert!(key.is_none() || !plain.contains("app-1"));
            let packed = loaded.config().packing.stats().objects;
            assert_eq!(packed > 0, form == PackingForm::Packed && again == PackingForm::Packed);
            drop(packer);
        }
    }
}

/// The process is killed between two blocks, or there is no room for the second.
#[tokio::test]
async fn a_file_that_ends_amid_objects_that_expire_together_leaves_none_of_them_behind() {
    let (storage, mut world) = (Memory::default(), World::new(50, PackingForm::Plain).await);
    let snapshots = snapshots(&storage, None);
    let (mut journal, mut recorder) = begin(&snapshots, &identity(), &world.cache).unwrap();
    world.change(5).await;
    let before = (world.cache.resource_version(), state(&world.cache));
    world.expire().await;
    let mut recorded = all(&mut recorder);
    assert!(recorded.events.pop().unwrap().rv == recorded.events.last().unwrap().rv);
    recorded.rv = None;
    journal.append(&recorded).unwrap();
    let (_writer, loaded) = load(&snapshots, identity(), PackingForm::Plain).await.unwrap();
    assert_eq!((loaded.resource_version(), state(&loaded)), before);
}

#[tokio::test]
async fn a_large_window_is_no_reason_to_write_the_state_again() {
    let (storage, world) = (Memory::default(), World::new(5, PackingForm::Plain).await);
    let (mut journal, _) = begin(&snapshots(&storage, None), &identity(), &world.cache).unwrap();
    let mut seed = 1u64;
    let mut events = |rv: Option<u64>| {
        let mut digit = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from_digit((seed >> 60) as u32, 16).unwrap()
        };
        let mut event = |n: u64| {
            let text: String = std::iter::repeat_with(&mut digit).take(600 << 10).collect();
            let raw = Raw::new(format!("{{\"metadata\":{{}},\"a\":\"{text}\"}},").into(), 12..14, 13..13);
            let (key, attributes) = (ObjectKey::new("a", &n.to_string()), AttributesBuilder::new("u").build());
            let object = Arc::new(Object::new(key, ResourceVersion(n), attributes, raw));
            let (kind, rv, received) = (EventType::Added, object.rv, Instant::now());
            Arc::new(WatchCacheEvent { kind, rv, object, prev: None, received })
        };
        Recorded { events: (0..10).map(|n| event(2000 + n)).collect(), rv: rv.map(ResourceVersion) }
    };
    // The window comes in two parts, some 3 MB each.
    for rv in [None, Some(2009)] {
        journal.append(&events(rv)).unwrap();
        assert!(!journal.is_long(1));
    }
    journal.append(&events(None)).unwrap();
    assert!(!journal.is_long(1), "as large as a half of what was there");
    for _ in 0..2 {
        journal.append(&events(Some(2009))).unwrap();
    }
    assert!(journal.is_long(1) && !journal.is_long(2));
}

/// Waits until the file has the state of this cache. Blocking threads write while the clock stands still.
async fn is_kept(snapshots: &Snapshots, cache: &WatchCache) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        if let Some((_writer, loaded)) = load(snapshots, identity(), PackingForm::Plain).await
            && loaded.resource_version() == cache.resource_version()
        {
            return assert_eq!(state(&loaded), state(cache));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_task_keeps_the_file_up_to_date() {
    let (storage, mut world) = (Memory::default(), World::new(50, PackingForm::Plain).await);
    let snapshots = snapshots(&storage, None);
    let task = crate::lifecycle::spawn("snapshot", snapshots.of(identity()).record(world.cache.clone()));
    for _ in 0..5 {
        world.change(7).await;
        is_kept(&snapshots, &world.cache).await;
    }
    // Deletions that may not be all are asked for again.
    let before = (world.cache.resource_version(), state(&world.cache));
    world.writer.delete_together(vec![object(20, before.0.get() + 1)], false).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (_writer, loaded) = load(&snapshots, identity(), PackingForm::Plain).await.unwrap();
    assert_eq!((loaded.resource_version(), state(&loaded)), before);
    // A whole state that was read anew replaces what was kept, which is of no use from that moment on.
    let objects = (0..3).map(|name| Arc::new(object(name, 5000 + name))).collect();
    world.writer.replace(objects, ResourceVersion(6000)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let kept = load(&snapshots, identity(), PackingForm::Plain).await;
    assert!(kept.is_none_or(|(_, kept)| kept.resource_version().get() == 6000));
    is_kept(&snapshots, &world.cache).await;
    drop(world);
    tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    assert!(load(&snapshots, identity(), PackingForm::Plain).await.is_some(), "it outlives its cache");
}

#[tokio::test]
async fn a_file_of_something_else_is_not_used() {
    let (storage, world) = (Memory::default(), World::new(20, PackingForm::Plain).await);
    let kept = snapshots(&storage, None);
    drop(begin(&kept, &identity(), &world.cache).unwrap());
    assert!(load(&kept, identity(), PackingForm::Plain).await.is_some());
    let file = storage.inner.lock().files[&identity().file_name()].clone();
    let others = [
        Identity { cluster: Cluster { uid: "v".into(), ..identity().cluster }, ..identity() },
        Identity { cluster: Cluster { version: "v1.37.0".into(), ..identity().cluster }, ..identity() },
        Identity { cluster: Cluster { authorities: "other".into(), ..identity().cluster }, ..identity() },
        Identity { resource: "v1/nodes".into(), ..identity() },
        Identity { definition: "2".into(), ..identity() },
        Identity { namespace: "a".into(), ..identity() },
        Identity { field_selector: "spec.nodeName=a".into(), ..identity() },
        Identity { label_selector: "a=b".into(), ..identity() },
        Identity { encoding: "protobuf".into(), ..identity() },
        Identity { fields: "g".into(), ..identity() },
    ];
    for other in others {
        assert!(load(&kept, other.clone(), PackingForm::Plain).await.is_none(), "{other:?}");
        // Somebody has put it in the place of another.
        storage.inner.lock().files.insert(other.file_name(), file.clone());
        assert!(load(&kept, other.clone(), PackingForm::Plain).await.is_none(), "{other:?}");
    }
    let key = Key::parse(&"5a".repeat(32)).unwrap();
    storage.inner.lock().files.insert(identity().file_name(), file);
    assert!(load(&snapshots(&storage, Some(key)), identity(), PackingForm::Plain).await.is_none());
    assert!(load(&kept, identity(), PackingForm::Plain).await.is_some());
}

#[tokio::test]
async fn a_state_that_does_not_fit_is_not_loaded() {
    let (storage, world) = (Memory::default(), World::new(300, PackingForm::Plain).await);
    let snapshots = snapshots(&storage, None);
    drop(begin(&snapshots, &identity(), &world.cache).unwrap());
    for (limit, fits) in [(1 << 20, true), (64 << 10, false)] {
        let budget = crate::cache::Budget::new(limit);
        let gvr = crate::meta::Gvr::new("", "v1", "pods");
        let config = crate::cache::CacheConfig { budget: budget.clone(), ..crate::cache::CacheConfig::new(gvr) };
        let (mut writer, cache) = crate::cache::new(config);
        let loaded = snapshots.of(identity()).load(writer.restoration()).await;
        assert_eq!((loaded.is_some(), budget.used() > 0), (fits, fits), "{limit}");
        let loading = budget.used();
        if let Some(loaded) = loaded {
            writer.restore(loaded).unwrap();
            assert_eq!(budget.used(), world.cache.config().budget.used());
            assert!(budget.used() >= loading / 2 && cache.is_ready());
        }
    }
}

#[tokio::test]
async fn an_old_file_is_not_used() {
    let (storage, world) = (Memory::default(), World::new(20, PackingForm::Plain).await);
    let config = SnapshotConfig { dir: "/".into(), max_bytes: 1 << 30, max_age: Duration::from_secs(1), key: None };
    let snapshots = Snapshots::new(config, storage);
    let (mut journal, mut recorder) = begin(&snapshots, &identity(), &world.cache).unwrap();
    journal.append(&all(&mut recorder)).unwrap();
    assert!(load(&snapshots, identity(), PackingForm::Plain).await.is_some());
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert!(load(&snapshots, identity(), PackingForm::Plain).await.is_none());
    // Progress shows that the process lived until now.
    journal.append(&all(&mut recorder)).unwrap();
    assert!(load(&snapshots, identity(), PackingForm::Plain).await.is_some());
}

#[tokio::test]
async fn all_files_together_stay_within_their_space() {
    let (storage, world) = (Memory::default(), World::new(300, PackingForm::Plain).await);
    let config = SnapshotConfig { dir: "/".into(), max_bytes: 16 << 10, max_age: Duration::MAX, key: None };
    let snapshots = Snapshots::new(config, storage.clone());
    let len = || storage.inner.lock().files.values().map(Vec::len).sum::<usize>();
    let mut written = 0;
    for n in 0..40 {
        let identity = Identity { namespace: format!("n{n}"), ..identity() };
        written += usize::from(begin(&snapshots, &identity, &world.cache).is_ok());
        assert!(len() <= 16 << 10, "{}", len());
    }
    assert_eq!(written, 40, "the oldest ones make room");
    let open: Vec<_> = (0..40)
        .map_while(|n| begin(&snapshots, &Identity { namespace: format!("m{n}"), ..identity() }, &world.cache).ok())
        .collect();
    assert!((1..40).contains(&open.len()), "{} are kept up to date", open.len());
    assert!(len() <= 16 << 10, "{}", len());
}

/// Files of other programs stay, and those of earlier versions do not take space for ever.
#[tokio::test]
async fn leftovers_are_removed_and_what_is_unknown_stays() {
    let (storage, world) = (Memory::default(), World::new(5, PackingForm::Plain).await);
    let (leftovers, others) =
        (["a.cluster", "a.cluster.new", "b.snapshot.new"], ["cluster", "notes.txt", "b.snapshot"]);
    for name in leftovers.iter().chain(&others) {
        storage.inner.lock().files.insert((*name).to_owned(), vec![0; 10]);
    }
    drop(begin(&snapshots(&storage, None), &identity(), &world.cache).unwrap());
    let files = storage.inner.lock().files.clone();
    assert!(leftovers.iter().all(|name| !files.contains_key(*name)), "{:?}", files.keys());
    assert!(others.iter().all(|name| files.contains_key(*name)), "{:?}", files.keys());
}
