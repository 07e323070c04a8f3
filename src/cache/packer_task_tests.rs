//! What is packed when, and that neither readers nor the account notice more than they should.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::Arriving;
use crate::cache::dispatcher::Dispatcher;
use crate::cache::testing::{cache, dispatch, spec, take};
use crate::cache::{Budget, CacheConfig, WatchCache, WatchStart, Writer};
use crate::lifecycle::spawn;
use crate::meta::{AttributesBuilder, EventType, Object, ObjectKey, Raw, ResourceVersion};
use crate::packing::{Packing, PackingConfig, PackingForm};

const OBJECTS: u64 = 500;

fn text(name: u64, rv: u64) -> String {
    let spec: String = (0..20).map(|n| format!("\"field-{n}\":\"value-{}\",", (name * 7 + n) % 97)).collect();
    format!(
        "{{\"metadata\":{{\"name\":\"o{name:04}\"}},\"spec\":{{{spec}\"last\":\"{}\"}},\"rv\":\"{rv}\"}},",
        name * name
    )
}

fn object(name: u64, rv: u64) -> Object {
    let attributes = AttributesBuilder::new(&format!("uid-{name}")).build();
    let raw = Raw::new(Bytes::from(text(name, rv)), 12..28, 0..0);
    Object::new(ObjectKey::new("a", &format!("o{name:04}")), ResourceVersion(rv), attributes, raw)
}

fn with(form: PackingForm, threshold: usize, hot_bytes: usize) -> (Packing, Budget, impl FnOnce(&mut CacheConfig)) {
    let packing = Packing::new(PackingConfig { form, threshold, hot_bytes });
    let budget = Budget::new(100 << 20);
    let (packing_too, budget_too) = (packing.clone(), budget.clone());
    (packing, budget, move |config| (config.packing, config.budget) = (packing_too, budget_too))
}

async fn filled(writer: &mut Writer) {
    let objects = (0..OBJECTS).map(|name| Arc::new(object(name, name + 1))).collect();
    writer.replace(objects, ResourceVersion(1000)).await.unwrap();
}

/// A cache of the objects, with its packer.
async fn running(
    form: PackingForm,
    threshold: usize,
    hot_bytes: usize,
) -> (Packing, Budget, Writer, WatchCache, Dispatcher) {
    let (packing, budget, change) = with(form, threshold, hot_bytes);
    let (mut writer, cache, dispatcher) = cache(change);
    spawn("packer", cache.run_packer());
    // It waits until there is something to pack.
    tokio::task::yield_now().await;
    filled(&mut writer).await;
    (packing, budget, writer, cache, dispatcher)
}

/// Another task waits for the same moments, on real threads.
async fn until_packed(packing: &Packing) {
    while packing.stats().objects < OBJECTS {
        sleep(Duration::from_secs(1)).await;
    }
}

fn list(cache: &WatchCache) -> Vec<Bytes> {
    cache.snapshot().unwrap().store().iter().map(|object| object.raw().unwrap().framed()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cache_is_packed_and_its_account_shrinks() {
    let (packing, budget, mut writer, cache, mut dispatcher) = running(PackingForm::Packed, 0, 0).await;
    let (before, plain, bytes) = (list(&cache), budget.used(), cache.stats().bytes);
    until_packed(&packing).await;
    assert_eq!(list(&cache), before);
    let saved = usize::try_from(packing.stats().saved_bytes).unwrap();
    assert_eq!(budget.used(), plain - saved);
    assert!(saved > 0 && cache.stats().bytes == bytes - saved);

    // A change, the version that it replaced, and a deletion.
    let mut watcher = cache.watch(spec(WatchStart::Now)).unwrap();
    writer.apply(EventType::Modified, object(7, 1001)).await.unwrap();
    writer.apply(EventType::Modified, object(7, 1002)).await.unwrap();
    writer.apply(EventType::Deleted, object(8, 1003)).await.unwrap();
    dispatch(&mut dispatcher);
    assert_eq!(take(&mut watcher), ["MODIFIED a/o0007@1001", "MODIFIED a/o0007@1002", "DELETED a/o0008@1003"]);
    for rv in [1000, 1001, 1002] {
        let then = cache.snapshot_at(ResourceVersion(rv)).unwrap();
        let texts: Vec<String> =
            (0..OBJECTS).map(|name| text(name, if name == 7 && rv > 1000 { rv } else { name + 1 })).collect();
        let held: Vec<Bytes> = then.store().iter().map(|object| object.raw().unwrap().framed()).collect();
        assert_eq!(held, texts, "at {rv}");
    }
    let replaced = cache.stats().window_bytes;
    assert!(replaced < 4 * 700, "{replaced}: three versions that are differences or packed");

    drop((writer, watcher, dispatcher));
    sleep(Duration::from_secs(5)).await;
    drop(cache);
    let stats = packing.stats();
    assert_eq!((stats.objects, stats.saved_bytes, stats.hot_bytes, budget.used()), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_changed_object_becomes_a_difference_from_its_packed_version() {
    let (packing, _budget, mut writer, cache, mut dispatcher) = running(PackingForm::Packed, 0, 0).await;
    until_packed(&packing).await;
    let key = ObjectKey::new("a", "o0007");
    let size = || cache.snapshot().unwrap().get(&key).unwrap().present_size();
    let packed = size();
    for rv in 1001..1005 {
        writer.apply(EventType::Modified, object(7, rv)).await.unwrap();
        dispatch(&mut dispatcher);
        let plain = size();
        sleep(Duration::from_secs(10)).await;
        assert!(size() < packed && packed < plain, "{} of {packed} of {plain}", size());
        assert_eq!(cache.snapshot().unwrap().get(&key).unwrap().raw().unwrap().framed(), text(7, rv));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_read_stays_plain() {
    let (packing, _budget, _writer, cache, _dispatcher) = running(PackingForm::Packed, 0, 1 << 20).await;
    let reader = cache.clone();
    let read = move || {
        let snapshot = reader.snapshot().unwrap();
        (0..10)
            .for_each(|name| drop(snapshot.get(&ObjectKey::new("a", &format!("o{name:04}"))).unwrap().raw().unwrap()));
    };
    while packing.stats().objects < OBJECTS - 10 {
        read();
        sleep(Duration::from_millis(500)).await;
    }
    for _ in 0..20 {
        read();
        read();
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(packing.stats().objects, OBJECTS - 10);
    assert!(packing.stats().hot_bytes > 0);
    // Nobody reads them any more.
    sleep(Duration::from_secs(20)).await;
    assert_eq!((packing.stats().objects, packing.stats().hot_bytes), (OBJECTS, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_read_in_a_state_that_no_longer_changes_is_packed_again() {
    let (packing, _budget, _writer, cache, _dispatcher) = running(PackingForm::Packed, 0, 1 << 20).await;
    until_packed(&packing).await;
    // Nothing is left to do.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(list(&cache), list(&cache));
    assert_eq!(packing.stats().objects, 0);
    sleep(Duration::from_secs(20)).await;
    assert_eq!((packing.stats().objects, packing.stats().hot_bytes), (OBJECTS, 0));
}

#[tokio::test(start_paused = true)]
async fn a_small_process_packs_nothing() {
    let (packing, _budget, _writer, _cache, _dispatcher) = running(PackingForm::Auto, 10 << 20, 0).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(packing.stats(), Default::default());
}

#[tokio::test]
async fn a_large_state_is_packed_while_it_is_read() {
    let (packing, _budget, change) = with(PackingForm::Packed, 100 << 10, 0);
    let (writer, _cache, _dispatcher) = cache(change);
    let (mut arriving, mut objects, mut plain) = (Arriving::default(), Vec::new(), 0);
    for name in 0.. {
        let object = Arc::new(object(name, name + 1));
        plain += object.size();
        let saved = arriving.take(&writer, &object);
        assert!(saved < 10 << 10);
        objects.push(object);
        writer.account().load(plain).unwrap();
        if name < 100 {
            assert_eq!(packing.stats().packed_total, 0, "too small");
        }
        if packing.stats().packed_total > 1000 {
            break;
        }
        // The dictionary is trained on another thread.
        sleep(Duration::from_micros(100)).await;
    }
    assert!(objects.last().unwrap().present_size() < objects.last().unwrap().size());
    for (name, object) in (0..).zip(&objects) {
        assert_eq!(object.raw().unwrap().framed(), text(name, name + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_slow_readers_hold_of_an_earlier_state_makes_the_new_one_no_smaller() {
    let (packing, budget, change) = with(PackingForm::Packed, 0, 0);
    let (mut writer, cache, _dispatcher) = cache(change);
    spawn("packer", cache.run_packer());
    for is_given_up in [false, true] {
        filled(&mut writer).await;
        until_packed(&packing).await;
        let (packed, reader) = (budget.used(), cache.snapshot().unwrap());
        let others: Vec<_> = (OBJECTS..2 * OBJECTS).map(|name| Arc::new(object(name, name + 1))).collect();
        let plain: usize = others.iter().map(|object| Budget::cost(object.size())).sum();
        if is_given_up {
            writer.not_ready("it is read anew");
            assert!(budget.used() >= packed, "what is given up is there");
        }
        writer.replace(others, ResourceVersion(2000)).await.unwrap();
        let held: usize = reader.store().iter().map(|object| object.present_size()).sum();
        assert!(packed < plain && packing.stats().objects == OBJECTS, "{packed} of {plain}");
        assert!(budget.used() >= plain + held, "{} of {plain} and {held}", budget.used());
        drop(reader);
        let left = budget.used() - plain;
        assert!(left < packed, "{left} of {packed}: nothing but the dictionary");
        writer.not_ready("from the beginning");
        assert_eq!(budget.used(), 0);
    }
}
