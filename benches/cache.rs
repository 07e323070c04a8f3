//! The costs the cache's design rests on: an event, a snapshot, an old state, a list, and an event among many groups.

#![expect(clippy::expect_used, reason = "a bench that cannot run is to stop")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use informerd::cache::{self, CacheConfig, CacheWatcher, WatchCache, WatchSpec, WatchStart, Writer};
use informerd::meta::{AttributesBuilder, EventType, Gvr, Object, ObjectKey, Raw, ResourceVersion, Scope};
use informerd::selector::{CompiledFields, LabelSelector, Predicate};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

const OBJECTS: u64 = 10_000;

struct Bench {
    runtime: Runtime,
    writer: Writer,
    cache: WatchCache,
    rv: u64,
}

fn object(i: u64, rv: u64) -> Object {
    let mut attributes = AttributesBuilder::new("5b1a7c6e-0000-4000-8000-000000000000");
    attributes.label("app", &format!("app-{}", i % 1000));
    attributes.label("pod-template-hash", "7d9c5b6f8d");
    attributes.field("");
    let raw = Raw::new(Bytes::from(vec![b'x'; 2048]), 0..1, 0..1);
    let key = ObjectKey::new(&format!("namespace-{}", i % 100), &format!("pod-{i:06}"));
    Object::new(key, ResourceVersion(rv), attributes.build(), raw)
}

fn predicate(labels: &str) -> Predicate {
    let labels = LabelSelector::parse(labels).expect("a selector");
    Predicate::new(Scope::all(), labels, CompiledFields::default())
}

impl Bench {
    /// A synced cache whose dispatcher runs whenever the bench waits.
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let config = CacheConfig { window_max_bytes: 64 << 20, ..CacheConfig::new(Gvr::new("", "v1", "pods")) };
        let (mut writer, cache) = cache::new(config);
        let objects = (0..OBJECTS).map(|i| Arc::new(object(i, i + 1))).collect();
        runtime.block_on(writer.replace(objects, ResourceVersion(OBJECTS))).expect("a list");
        {
            let _entered = runtime.enter();
            informerd::lifecycle::spawn("dispatcher", cache.run_dispatcher());
        }
        Self { runtime, writer, cache, rv: OBJECTS }
    }

    fn watch(&self, labels: &str) -> CacheWatcher {
        let deadline = Instant::now() + Duration::from_secs(3600);
        let (predicate, start) = (predicate(labels), WatchStart::Now);
        self.cache
            .watch(WatchSpec { predicate, start, bookmarks: true, initial_end: false, deadline })
            .expect("a watcher")
    }

    /// Changes one object after another.
    fn apply(&mut self, events: u64) {
        let Self { runtime, writer, rv, .. } = self;
        runtime.block_on(async {
            for _ in 0..events {
                *rv += 1;
                // A large prime: no two changes in a row are neighbours.
                let object = object(*rv * 7919 % OBJECTS, *rv);
                writer.apply(EventType::Modified, object).await.expect("an event");
            }
        });
    }

    /// Until the dispatcher has nothing left.
    fn settle(&self) {
        self.runtime.block_on(async {
            while self.cache.stats().dispatched_rv.get() < self.rv {
                tokio::task::yield_now().await;
            }
        });
    }
}

fn writing(c: &mut Criterion) {
    let mut bench = Bench::new();
    c.bench_function("apply, 10k objects, no watcher", |b| {
        b.iter(|| bench.apply(1));
        bench.settle();
    });
    c.bench_function("relist of 10k equal objects", |b| {
        let mut rv = bench.rv;
        let objects: Vec<_> = bench.cache.snapshot().expect("ready").range(&Scope::all(), None).cloned().collect();
        b.iter_batched(
            || objects.clone(),
            |objects| {
                rv += 1;
                bench.runtime.block_on(bench.writer.replace(objects, ResourceVersion(rv)))
            },
            BatchSize::LargeInput,
        );
    });
}

fn reading(c: &mut Criterion) {
    let mut bench = Bench::new();
    bench.apply(8000);
    bench.settle();
    let cache = &bench.cache;
    c.bench_function("snapshot", |b| b.iter(|| black_box(cache.snapshot())));
    c.bench_function("iterate 10k", |b| {
        let snapshot = cache.snapshot().expect("ready");
        b.iter(|| {
            snapshot.range(&Scope::all(), None).map(|object| object.raw().map_or(0, |raw| raw.len())).sum::<usize>()
        });
    });
    c.bench_function("iterate one namespace of 100", |b| {
        let (snapshot, scope) = (cache.snapshot().expect("ready"), Scope::namespace("namespace-42"));
        b.iter(|| snapshot.range(&scope, None).map(|object| object.raw().map_or(0, |raw| raw.len())).sum::<usize>());
    });
    c.bench_function("state at a revision of the window", |b| {
        let mut back = 0;
        b.iter(|| {
            back = (back + 997) % 7000;
            cache.snapshot_at(ResourceVersion(bench.rv - back))
        });
    });
    c.bench_function("state at one revision again", |b| {
        b.iter(|| cache.snapshot_at(ResourceVersion(bench.rv - 5000)));
    });
    c.bench_function("watch: start and leave", |b| b.iter(|| bench.watch("app=app-1")));
}

fn dispatching(c: &mut Criterion) {
    let mut bench = Bench::new();
    // An index finds the groups with one value. Those with two are all tried.
    for (name, other) in [("one value", ""), ("two values", ",other-")] {
        for groups in [10, 100, 1_000, 10_000] {
            let selector =
                |i| if other.is_empty() { format!("app=app-{i}") } else { format!("app in (app-{i}{other}{i})") };
            let watchers: Vec<_> = (0..groups).map(|i| bench.watch(&selector(i))).collect();
            c.bench_function(&format!("apply and dispatch, {groups} groups of {name}"), |b| {
                b.iter(|| {
                    bench.apply(1);
                    bench.settle();
                });
            });
            drop(watchers);
        }
    }
    let mut watcher = bench.watch("");
    c.bench_function("apply, dispatch and take 100 events", |b| {
        b.iter(|| {
            bench.apply(100);
            bench.settle();
            bench.runtime.block_on(async {
                for _ in 0..100 {
                    black_box(watcher.next().await);
                }
            });
        });
    });
}

criterion_group!(benches, writing, reading, dispatching);
criterion_main!(benches);
