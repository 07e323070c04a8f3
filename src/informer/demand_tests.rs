use super::*;
use crate::informer::InformerScope;
use crate::meta::Encoding;

fn key(resource: &str) -> InformerKey {
    InformerKey { gvr: Gvr::new("", "v1", resource), scope: InformerScope::default(), encoding: Encoding::Table }
}

/// The number of the read that starts the informer, if the reads are this far apart.
fn started_at(every: Duration, read: Use, rows: Rows) -> Option<usize> {
    let (mut ledger, now) = (Ledger::default(), Instant::now());
    (0..200).find(|&n| ledger.wants(&key("pods"), read.cost(rows), START, now + every * n)).map(|n| n as usize + 1)
}

#[tokio::test(start_paused = true)]
async fn repeated_use_starts_it() {
    let (all, page) = (Use::default(), Use { limit: Some(500), ..Use::default() });
    let (one, some) = (Use { named: true, ..Use::default() }, Use { selected: true, ..Use::default() });
    let unknown = Rows::default();
    let of = |whole: usize| Rows { whole: Some(whole), ..Rows::default() };
    let namespace = |asked: usize| Rows { whole: Some(10_000), asked: Some(asked), narrower: true };
    let (seconds, minutes) = (Duration::from_secs, |minutes: u64| Duration::from_secs(60 * minutes));
    for (every, read, rows, started) in [
        // A client that polls, or a user who runs the same command repeatedly.
        (seconds(2), all, unknown, Some(3)),
        (minutes(1), all, unknown, Some(3)),
        (minutes(5), page, unknown, Some(3)),
        (minutes(5), page, of(20), Some(3)),
        // Occasional reads.
        (minutes(15), all, unknown, None),
        (minutes(60), page, of(20), None),
        // A page of a large collection is a small part of it.
        (seconds(2), page, of(10_000), Some(42)),
        // One object costs almost nothing, unless it is read all the time.
        (minutes(1), one, of(10_000), None),
        (seconds(2), one, of(10), Some(21)),
        (seconds(30), some, of(400), Some(10)),
        // The pages after a first one that was forwarded, of an unknown whole or of a known one.
        (seconds(2), Use { past: true, ..all }, unknown, None),
        (seconds(2), Use { past: true, ..page }, of(10_000), Some(42)),
        // A namespace, for an informer of all namespaces.
        (seconds(30), all, namespace(20), None),
        (seconds(30), all, namespace(5_000), Some(5)),
    ] {
        assert_eq!(started_at(every, read, rows), started, "{every:?} {read:?} {rows:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_informer_is_wanted_for_itself() {
    let (mut ledger, now) = (Ledger::default(), Instant::now());
    assert!(!ledger.wants(&key("pods"), 1.9, START, now));
    assert!(!ledger.wants(&key("nodes"), 1.9, START, now));
    assert!(ledger.wants(&key("pods"), 0.1, START, now));
    // The start does not clear the cost: an informer that ends at once is started again.
    assert!(ledger.wants(&key("pods"), 0.1, START, now));
}

#[tokio::test(start_paused = true)]
async fn the_ledger_is_bounded() {
    let (mut ledger, now) = (Ledger::default(), Instant::now());
    assert!(!ledger.wants(&key("dear"), 1.5, START, now));
    for n in 0..2 * ENTRIES {
        ledger.wants(&key(&format!("cheap{n}")), 1.0, START, now);
    }
    assert_eq!(ledger.entries.len(), ENTRIES);
    assert!(ledger.wants(&key("dear"), 0.5, START, now), "the cheap ones are forgotten first");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_printed_is_tried_again_later() {
    let (mut ledger, gvr) = (Ledger::default(), Gvr::new("", "v1", "pods"));
    ledger.refuse(&gvr, Instant::now() + UNPRINTABLE, Instant::now());
    tokio::time::advance(UNPRINTABLE - Duration::from_secs(1)).await;
    assert!(ledger.refuses(&gvr, Instant::now()));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!ledger.refuses(&gvr, Instant::now()));
}

#[test]
fn events_nobody_reads_end_it() {
    let ends = |events, objects| is_spent(Duration::from_millis(1), events, objects, FEW);
    assert!(!ends(63, 3) && ends(64, 3));
    assert!(!ends(9_999, 10_000) && ends(10_000, 10_000));
    assert!(!is_spent(Duration::ZERO, 64, 3, FEW), "a watch uses them");
}

#[test]
fn who_has_hardly_read_and_is_gone_leaves_nothing() {
    for (idle, served, ends) in [(GONE, 2, true), (GONE - Duration::from_secs(1), 2, false), (GONE, 3, false)] {
        assert_eq!(is_spent(idle, 0, 100, served), ends, "{idle:?} after {served} reads");
    }
}

#[tokio::test(start_paused = true)]
async fn of_too_many_sizes_the_oldest_is_forgotten() {
    let mut ledger = Ledger::default();
    for n in 0..=ENTRIES {
        ledger.is_large(&key(&format!("r{n}")), 300, Instant::now());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let size = |n: usize| ledger.size(&key(&format!("r{n}")), Instant::now());
    assert_eq!((size(0), size(1), size(ENTRIES)), (None, Some(300), Some(300)));
    assert_eq!(ledger.sizes.len(), ENTRIES);
}
