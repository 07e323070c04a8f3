use std::time::Duration;

use super::tests::{World, client, config, config_map, lister, reflect_into};
use super::*;
use crate::apiserver::testing::until;
use crate::cache::{Budget, CacheConfig, EndReason, WatcherEvent};
use crate::lifecycle::backoff::BackoffConfig;
use informerd_sim::{Cut, Effect, Fault, Server, Verb};

const MIB: usize = 1 << 20;

async fn world(server: &Server, budget: &Budget, pinned: bool) -> World {
    let lister = lister("", "configmaps", "ConfigMap");
    let cache = CacheConfig { budget: budget.clone(), pinned, ..CacheConfig::new(lister.resource.gvr.clone()) };
    let soon = BackoffConfig {
        initial: Duration::from_millis(50),
        max: Duration::from_millis(100),
        ..BackoffConfig::default()
    };
    let config = ReflectorConfig { room: soon, page_size: 4, ..config() };
    reflect_into(cache, client(&server.url()).await, lister, config, None)
}

fn large(name: &str) -> serde_json::Value {
    config_map(name, &"x".repeat(200 << 10))
}

async fn with_objects(count: usize) -> Server {
    let mut builder = Server::builder();
    for i in 0..count {
        builder = builder.object(large(&format!("m{i:02}")));
    }
    builder.start().await.unwrap()
}

#[tokio::test]
async fn a_state_that_does_not_fit_is_not_read_to_its_end_and_taken_once_there_is_room() {
    let server = with_objects(20).await;
    for paged in [false, true] {
        if paged {
            server.faults().add(Fault::always(Effect::RefuseWatchList));
        }
        let budget = Budget::new(MIB);
        let world = world(&server, &budget, false).await;
        let status = world.until(|status| status.state == "refused").await;
        assert!(status.too_large && !status.synced, "{status:?}");
        assert!(status.last_error.as_ref().unwrap().contains("does not fit"), "{status:?}");
        assert!(world.handle.is_too_large() && world.cache.snapshot().is_none());
        assert_eq!(budget.used(), 0);
        // By then the reflector knows the number and size of the objects: most attempts end with the first object.
        let read = || {
            let counts = server.counts();
            counts.requests(Verb::Watch, "configmaps") + counts.requests(Verb::List, "configmaps")
        };
        let probed = || server.counts().requests(Verb::Probe, "configmaps");
        let before = (read(), probed());
        until(|| probed() >= before.1 + 4).await;
        let (reads, probes) = (read() - before.0, probed() - before.1);
        assert!(reads <= 1 + probes / 2, "{reads} reads, {probes} probes");
        assert!(world.handle.is_too_large(), "all the while");

        for i in 3..20 {
            server.delete("configmaps", "default", &format!("m{i:02}")).unwrap();
        }
        world.follows().await;
        world.converge(&server).await;
        assert!(!world.handle.is_too_large());
        let held = budget.used();
        assert!((600 << 10..700 << 10).contains(&held), "{held}");
        drop(world);
        for i in 3..20 {
            server.create(large(&format!("m{i:02}"))).unwrap();
        }
    }
}

#[tokio::test]
async fn what_was_read_of_a_state_that_broke_off_is_given_back() {
    let server = with_objects(8).await;
    server.faults().add(Fault::always(Effect::RefuseWatchList));
    let cut = server.faults().add(Fault::always(Effect::Cut(Cut::Fin)).verb(Verb::List));
    let budget = Budget::new(64 * MIB);
    let world = world(&server, &budget, false).await;
    until(|| server.faults().hits(cut) >= 3).await;
    until(|| budget.used() == 0).await;
    server.faults().clear();
    world.follows().await;
    assert!(budget.used() > 8 * (200 << 10));
}

#[tokio::test]
async fn a_count_of_objects_that_cannot_fit_is_enough() {
    let mut builder = Server::builder();
    for i in 0..2200 {
        builder = builder.object(config_map(&format!("m{i:04}"), ""));
    }
    let server = builder.start().await.unwrap();
    let world = world(&server, &Budget::new(MIB), true).await;
    world.until(|status| status.state == "refused").await;
    assert_eq!(server.counts().requests(Verb::Watch, "configmaps"), 0);
}

#[tokio::test]
async fn what_outgrows_the_budget_gives_up_its_state() {
    let server = with_objects(2).await;
    let budget = Budget::new(MIB);
    let world = world(&server, &budget, true).await;
    world.follows().await;
    let mut watcher = world.watcher();
    for i in 2..8 {
        server.create(large(&format!("m{i:02}"))).unwrap();
    }
    world.until(|status| status.state == "refused").await;
    // The watch ends without an error, as when the apiserver ends a watch.
    let end = loop {
        match watcher.next().await {
            Some(WatcherEvent::Event { .. }) => {}
            other => break other,
        }
    };
    assert!(end.is_none() && watcher.end_reason() == Some(EndReason::NotReady), "{end:?}");
    assert!(world.cache.snapshot().is_none() && budget.used() == 0);
}

#[tokio::test]
async fn a_state_that_is_read_again_costs_only_what_has_changed() {
    let server = with_objects(4).await;
    let budget = Budget::new(MIB);
    let world = world(&server, &budget, false).await;
    world.follows().await;
    let synced = world.handle.status().relists;
    server.faults().expire_watches(None);
    world.until(|status| status.relists > synced && status.state == "follow").await;
    world.converge(&server).await;
    assert!(!world.handle.is_too_large() && (800 << 10..900 << 10).contains(&budget.used()), "{}", budget.used());
}

#[tokio::test]
async fn a_pinned_state_takes_the_place_of_one_that_is_not() {
    let server = with_objects(4).await;
    let budget = Budget::new(MIB);
    let first = world(&server, &budget, false).await;
    first.follows().await;
    let pinned = world(&server, &budget, true).await;
    pinned.follows().await;
    first.until(|status| status.state == "refused").await;
    pinned.converge(&server).await;
    assert!(first.handle.is_too_large() && !pinned.handle.is_too_large());
}
