use std::collections::BTreeSet;

use super::*;
use crate::cache::Writer;
use crate::cache::testing::{cache, object};

/// A simulated apiserver: states and events by revision. A cache can be fed from it at any time.
#[derive(Debug, Default)]
struct Cluster {
    rv: u64,
    objects: std::collections::BTreeMap<String, (u64, bool)>,
    events: Vec<(EventType, u64, String, bool)>,
}

/// An object that is selected or not; a label in its bytes tells which.
fn made(name: &str, rv: u64, chosen: bool) -> Object {
    object("ns", name, rv, &[("chosen", if chosen { "yes" } else { "no" })], "")
}

impl Cluster {
    fn write(&mut self, gap: u64, name: usize, what: u8) {
        let name = format!("n{name}");
        let chosen = what.is_multiple_of(2);
        let kind = match (self.objects.get(&name), what) {
            (Some(_), 4..) => EventType::Deleted,
            (Some(_), _) => EventType::Modified,
            (None, _) => EventType::Added,
        };
        self.rv += gap;
        let chosen = match kind {
            EventType::Deleted => self.objects.remove(&name).is_some_and(|(_, chosen)| chosen),
            _ => {
                self.objects.insert(name.clone(), (self.rv, chosen));
                chosen
            }
        };
        self.events.push((kind, self.rv, name, chosen));
    }

    fn objects(&self) -> impl Iterator<Item = Object> {
        self.objects.iter().map(|(name, (rv, chosen))| made(name, *rv, *chosen))
    }

    fn state(&self) -> Vec<Arc<Object>> {
        self.objects().map(Arc::new).collect()
    }
}

/// Backfills the events of a cluster between two revisions, and the objects at the first one.
fn fill(mut backfill: Backfill, from: &Cluster, to: &Cluster) -> Result<usize, BackfillError> {
    for (kind, rv, name, chosen) in &to.events[from.events.len()..] {
        backfill.push(*kind, made(name, *rv, *chosen))?;
    }
    let unknown: BTreeSet<_> = backfill.unknown().iter().map(|key| key.name().to_owned()).collect();
    // The list contains all objects, not only the unknown ones.
    from.objects().try_for_each(|object| backfill.was(object))?;
    let changed = to.events[from.events.len()..].iter().map(|(_, _, name, _)| name.clone());
    assert_eq!(unknown, changed.filter(|name| from.objects.contains_key(name)).collect());
    backfill.finish()
}

impl Clone for Cluster {
    fn clone(&self) -> Self {
        Self { rv: self.rv, objects: self.objects.clone(), events: self.events.clone() }
    }
}

/// One cluster with a history, and a cache that was given its state.
async fn restarted() -> (Cluster, Cluster, Writer, WatchCache) {
    let mut before = Cluster { rv: 10, ..Default::default() };
    before.write(1, 0, 0);
    before.write(1, 1, 0);
    let mut now = before.clone();
    now.write(1, 0, 1);
    now.write(1, 1, 4);
    now.write(1, 2, 0);
    let (mut writer, cache, _) = cache(|config| config.window_max_events = 100);
    writer.replace(now.state(), ResourceVersion(now.rv)).await.unwrap();
    (before, now, writer, cache)
}

#[tokio::test]
async fn what_does_not_lead_to_the_window_is_not_taken() {
    let (before, now, _writer, cache) = restarted().await;
    let begin = || cache.backfill(ResourceVersion(before.rv)).unwrap();
    let doubtful = |result| assert!(matches!(result, Err(Doubtful(_))), "{result:?}");
    // The change or the creation of an object is missing. (A missing deletion could not be detected.)
    for missing in [before.events.len(), now.events.len() - 1] {
        let mut other = now.clone();
        other.events.remove(missing);
        doubtful(fill(begin(), &before, &other));
    }
    // One event too many.
    let mut more = now.clone();
    more.write(1, 3, 0);
    doubtful(fill(begin(), &before, &more));
    // Events out of order, and a state with a too new revision.
    let mut backfill = begin();
    backfill.push(EventType::Modified, made("n0", 14, true)).unwrap();
    doubtful(backfill.push(EventType::Modified, made("n1", 14, true)).map(|()| 0));
    doubtful(backfill.was(made("n0", 13, true)).map(|()| 0));
    drop(backfill);
    // The old state of an object is missing.
    let mut backfill = begin();
    for (kind, rv, name, chosen) in &now.events[before.events.len()..] {
        backfill.push(*kind, made(name, *rv, *chosen)).unwrap();
    }
    doubtful(backfill.finish());
    let stats = cache.stats();
    assert_eq!((stats.window_events, stats.window_floor.get(), stats.backfilled_events_total), (0, now.rv, 0));
    assert_eq!(stats.backfills_total, stats.backfills_failed_total);
    assert_eq!(fill(begin(), &before, &now), Ok(3));
    assert_eq!(cache.stats().backfills_total, stats.backfills_failed_total + 1);
}

#[tokio::test]
async fn the_windows_bounds_hold() {
    let mut before = Cluster { rv: 10, ..Default::default() };
    before.write(1, 0, 0);
    let mut now = before.clone();
    (0..101).for_each(|_| now.write(1, 0, 0));
    for (events, bytes, room) in [(100, usize::MAX, false), (101, usize::MAX, true), (101, 10_000, false)] {
        let (mut writer, cache, _) = cache(|config| {
            (config.window_max_events, config.window_max_bytes) = (events, bytes);
        });
        writer.replace(now.state(), ResourceVersion(now.rv)).await.unwrap();
        let filled = fill(cache.backfill(ResourceVersion(before.rv)).unwrap(), &before, &now);
        assert_eq!(filled, if room { Ok(101) } else { Err(BackfillError::Window) });
    }
    // The limit of all caches together.
    let budget = crate::cache::Budget::new(10_000);
    let (mut writer, cache, _) = cache(|config| config.budget = budget.clone());
    writer.replace(now.state(), ResourceVersion(now.rv)).await.unwrap();
    let used = budget.used();
    let filled = fill(cache.backfill(ResourceVersion(before.rv)).unwrap(), &before, &now);
    assert!(matches!(filled, Err(BackfillError::Memory(_))), "{filled:?}");
    assert_eq!(budget.used(), used);
}
