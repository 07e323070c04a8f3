use super::*;
use crate::cache::testing::{cache, plain};
use crate::cache::{Budget, Writer};

/// What happened to an object of the namespace `ns`, and at which revision.
type Happened = (EventType, &'static str, u64);

/// The objects at revision 12, what has happened since then, and the objects that a cache has listed at 15.
const BEFORE: [(&str, u64); 2] = [("n0", 11), ("n1", 12)];
const EVENTS: [Happened; 3] =
    [(EventType::Modified, "n0", 13), (EventType::Deleted, "n1", 14), (EventType::Added, "n2", 15)];
const AFTER: [(&str, u64); 2] = [("n0", 13), ("n2", 15)];

async fn list(writer: &mut Writer, objects: &[(&str, u64)], rv: u64) {
    let objects = objects.iter().map(|(name, rv)| Arc::new(plain("ns", name, *rv))).collect();
    writer.replace(objects, ResourceVersion(rv)).await.unwrap();
}

/// Backfills events, and the objects that were there before them.
fn fill(mut backfill: Backfill, before: &[(&str, u64)], events: &[Happened]) -> Result<usize, BackfillError> {
    events.iter().try_for_each(|(kind, name, rv)| backfill.push(*kind, plain("ns", name, *rv)))?;
    before.iter().try_for_each(|(name, rv)| backfill.was(plain("ns", name, *rv)))?;
    backfill.finish()
}

#[tokio::test]
async fn what_does_not_lead_to_the_window_is_not_taken() {
    let (mut writer, cache, _) = cache(|config| config.window_max_events = 100);
    list(&mut writer, &AFTER, 15).await;
    let begin = || cache.backfill(ResourceVersion(12)).unwrap();
    let one_more = [&EVENTS[..], &[(EventType::Added, "n3", 16)]].concat();
    for (what, before, events) in [
        // A missing deletion could not be detected.
        ("a change is missing", &BEFORE[..], &EVENTS[1..]),
        ("a creation is missing", &BEFORE, &EVENTS[..2]),
        ("one event too many", &BEFORE, &one_more),
        ("out of order", &BEFORE, &[EVENTS[0], (EventType::Deleted, "n1", 13), EVENTS[2]]),
        ("a state of then is too new", &[("n0", 13), BEFORE[1]], &EVENTS),
        ("a state of then is missing", &BEFORE[..1], &EVENTS),
    ] {
        let filled = fill(begin(), before, events);
        assert!(matches!(filled, Err(Doubtful(_))), "{what}: {filled:?}");
    }
    let stats = cache.stats();
    assert_eq!((stats.window_events, stats.window_floor.get(), stats.backfilled_events_total), (0, 15, 0));
    assert_eq!(stats.backfills_total, stats.backfills_failed_total);
    let mut backfill = begin();
    EVENTS.iter().for_each(|(kind, name, rv)| backfill.push(*kind, plain("ns", name, *rv)).unwrap());
    let unknown: std::collections::BTreeSet<_> = backfill.unknown().iter().map(ToString::to_string).collect();
    assert!(unknown.iter().eq(["ns/n0", "ns/n1"]), "{unknown:?}");
    // Others do no harm.
    assert_eq!(fill(backfill, &[BEFORE[0], ("n2", 15), BEFORE[1]], &[]), Ok(3));
    assert_eq!(cache.stats().backfills_total, stats.backfills_failed_total + 1);
}

#[tokio::test]
async fn the_windows_bounds_hold() {
    let events: Vec<Happened> = (12..=112).map(|rv| (EventType::Modified, "n0", rv)).collect();
    for (max_events, max_bytes, limit, expected) in [
        (101, usize::MAX, usize::MAX, "filled"),
        (100, usize::MAX, usize::MAX, "window"),
        (101, 10_000, usize::MAX, "window"),
        // Of all caches together.
        (101, usize::MAX, 10_000, "memory"),
    ] {
        let budget = Budget::new(limit);
        let (mut writer, cache, _) = cache(|config| {
            (config.window_max_events, config.window_max_bytes) = (max_events, max_bytes);
            config.budget = budget.clone();
        });
        list(&mut writer, &[("n0", 112)], 112).await;
        let used = budget.used();
        let filled = match fill(cache.backfill(ResourceVersion(11)).unwrap(), &[("n0", 11)], &events) {
            Ok(101) => "filled",
            Err(BackfillError::Window) => "window",
            Err(BackfillError::Memory(_)) => "memory",
            other => panic!("{other:?}"),
        };
        assert_eq!(filled, expected, "{max_events} events, {max_bytes} and {limit} bytes");
        assert!(filled == "filled" || budget.used() == used, "what was read is given back");
    }
}
