//! How far a merging task goes ahead of its consumer.

use std::time::Duration;

use super::*;
use crate::cache::{WatchSpec, WatchStart};
use crate::http::testing;
use crate::meta::EventType;
use crate::selector::Predicate;

/// A conflated watch of so many objects, before its task has begun.
async fn conflated(objects: usize, start: WatchStart) -> (testing::World, Conflated) {
    let world = testing::World::new(testing::objects(objects, 1)).await;
    let (in_snapshot, deadline) = (start == WatchStart::State, Instant::now() + Duration::from_secs(600));
    let spec = WatchSpec { predicate: Predicate::everything(), start, bookmarks: false, initial_end: true, deadline };
    let watcher = world.cache.watch(spec).unwrap();
    (world, Conflated::start(watcher, in_snapshot, &Ledger::default(), &Arc::default()))
}

#[tokio::test(start_paused = true)]
async fn so_much_of_a_snapshot_is_taken_before_its_consumer_asks() {
    for (objects, ahead) in [
        (SNAPSHOT_AHEAD - 1, SNAPSHOT_AHEAD - 1),
        (SNAPSHOT_AHEAD, SNAPSHOT_AHEAD),
        (SNAPSHOT_AHEAD + 1, SNAPSHOT_AHEAD),
        (2 * SNAPSHOT_AHEAD, SNAPSHOT_AHEAD),
    ] {
        let (_world, conflated) = conflated(objects, WatchStart::State).await;
        let (mut taken, mut most) = (0, 0);
        loop {
            // Time stands still while the task has something to do.
            tokio::time::sleep(Duration::from_millis(10)).await;
            most = most.max(conflated.shared.pending.lock().conflator.len());
            let next = std::future::poll_fn(|cx| conflated.shared.poll_next(cx)).await;
            match next.unwrap().event {
                WatcherEvent::Bookmark { initial_end: true, .. } => break,
                _ => taken += 1,
            }
        }
        assert_eq!((taken, most), (objects, ahead));
    }
}

#[tokio::test(start_paused = true)]
async fn less_may_be_pending_while_memory_is_short() {
    for (level, bytes, fits) in [
        (Level::Short, SHORT_PENDING_BYTES, true),
        (Level::Short, SHORT_PENDING_BYTES + 1, false),
        (Level::Tight, SHORT_PENDING_BYTES + 1, true),
    ] {
        let (_world, conflated) = conflated(0, WatchStart::Now).await;
        let mut pending = conflated.shared.pending.lock();
        let change = Change {
            kind: EventType::Modified,
            value: (testing::object(0, 1), None, None),
            rv: ResourceVersion(testing::FIRST as u64 + 1),
        };
        pending.conflator.push(ObjectKey::new("b", "c"), change, bytes);
        assert_eq!(pending.fits(level), fits, "{level:?} {bytes}");
    }
}
