//! The checker of histories finds what is wrong, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::support::history::{Log, Logged, Read, Seen, Selected};

/// A history of one key that is created at 10, changed at 20 and deleted at 30.
fn log() -> Log {
    let mut log = Log::default();
    for (rv, deleted) in [(10, false), (20, false), (30, true)] {
        log.push(Logged { rv, key: "a/x".to_owned(), group: "even".to_owned(), deleted });
    }
    log
}

fn read(began: u64, ended: u64, acknowledged: usize, seen: Seen) -> Read {
    let acknowledged = BTreeMap::from([("a/x".to_owned(), acknowledged)]);
    Read { what: "read".to_owned(), began, ended, acknowledged, from: 0, until: 31, seen }
}

fn list(rv: u64, of: Option<u64>) -> Seen {
    let state = of.map(|rv| ("a/x".to_owned(), rv)).into_iter().collect();
    Seen::Collection { rv, state, of: Selected::default(), limit: None }
}

fn object(rv: Option<u64>) -> Seen {
    Seen::Object { key: "a/x".to_owned(), rv }
}

#[test]
fn a_right_history_is_right() {
    let reads = [
        read(1, 2, 0, list(9, None)),
        read(3, 4, 1, list(10, Some(10))),
        // A write that is on its way may be seen or not.
        read(5, 8, 1, list(20, Some(20))),
        read(6, 7, 1, object(Some(10))),
        read(9, 10, 3, list(31, None)),
        read(11, 12, 3, object(None)),
        read(0, 13, 0, list(10, Some(10))),
    ];
    assert_eq!(log().check(&reads), Vec::<String>::new());
}

#[test]
fn wrong_reads_are_found() {
    for (what, reads) in [
        ("misses an acknowledged write", vec![read(1, 2, 2, list(15, Some(10)))]),
        ("misses an acknowledged deletion", vec![read(1, 2, 3, list(25, Some(20)))]),
        ("names a revision that it is not of", vec![read(1, 2, 1, list(20, Some(10)))]),
        ("names a revision of the future", vec![read(1, 2, 1, list(32, None))]),
        ("holds what was never there", vec![read(1, 2, 0, list(10, Some(9)))]),
        ("lacks what is there", vec![read(1, 2, 0, list(12, None))]),
        ("goes back", vec![read(1, 2, 0, list(20, Some(20))), read(3, 4, 0, list(10, Some(10)))]),
        ("an old object", vec![read(1, 2, 2, object(Some(10)))]),
        ("an object that is deleted", vec![read(1, 2, 3, object(Some(20)))]),
        ("an object goes back", vec![read(1, 2, 0, list(20, Some(20))), read(3, 4, 0, object(Some(10)))]),
        ("what was gone is back", vec![read(1, 2, 1, object(None)), read(3, 4, 0, list(25, Some(20)))]),
    ] {
        assert_eq!(log().check(&reads).len(), 1, "{what}");
    }
}
