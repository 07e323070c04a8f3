//! What readers saw, held against what the apiserver's own log of the resource says.
//!
//! Each key has one writer, so the log's events of a key are that writer's acknowledged writes in order. A read is a
//! snapshot: it must be the state of the log at the revision that it names, not older than any write that had been
//! acknowledged before the read began, and not older than any read that had ended before it began.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::client::{key, rv};

/// Keys and revisions of what was read.
pub(super) type State = BTreeMap<String, u64>;

/// An event of the log: the object's state after it, or none after a deletion.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub rv: u64,
    pub key: String,
    pub group: String,
    pub deleted: bool,
}

/// The apiserver's events of one collection, from the beginning.
#[derive(Clone, Debug, Default)]
pub(super) struct Log(pub Vec<Logged>);

/// What a read says it is of.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// A state of the whole selection: the first `limit` of it if there is one.
    Collection { rv: u64, state: State, group: Option<String>, limit: Option<usize> },
    /// One object, or that there is none.
    Object { key: String, rv: Option<u64> },
}

/// One read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub what: String,
    /// Places in the order of all beginnings and ends.
    pub began: u64,
    pub ended: u64,
    /// How many writes of each key were acknowledged when it began.
    pub acknowledged: BTreeMap<String, usize>,
    pub seen: Seen,
}

impl Log {
    pub(super) fn push(&mut self, event: &Value) {
        let object = &event["object"];
        self.0.push(Logged {
            rv: rv(object),
            key: key(object),
            group: object["metadata"]["labels"]["group"].as_str().unwrap_or_default().to_owned(),
            deleted: event["type"] == "DELETED",
        });
    }

    /// The state at a revision.
    fn state(&self, at: u64, group: Option<&str>) -> State {
        let mut state = State::new();
        for event in self.0.iter().take_while(|event| event.rv <= at) {
            if event.deleted || group.is_some_and(|group| group != event.group) {
                state.remove(&event.key);
            } else {
                state.insert(event.key.clone(), event.rv);
            }
        }
        state
    }

    /// The revision of the newest of the first so many writes of each key.
    fn newest(&self, writes: &BTreeMap<String, usize>) -> u64 {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let mut newest = 0;
        for event in &self.0 {
            let count = seen.entry(&event.key).or_default();
            *count += 1;
            if writes.get(&event.key).is_some_and(|writes| *count <= *writes) {
                newest = newest.max(event.rv);
            }
        }
        newest
    }

    /// Everything that is wrong with these reads.
    pub(super) fn check(&self, reads: &[Read]) -> Vec<String> {
        let mut wrong = Vec::new();
        for read in reads {
            if let Err(why) = self.check_one(read) {
                wrong.push(format!("{}: {why}\n  {read:?}", read.what));
            }
        }
        // In the order of real time no read is older than one that had ended before it began.
        let mut by_end: Vec<&Read> = reads.iter().collect();
        by_end.sort_by_key(|read| read.ended);
        let mut by_begin: Vec<&Read> = reads.iter().collect();
        by_begin.sort_by_key(|read| read.began);
        let (mut ended, mut newest) = (by_end.into_iter().peekable(), 0);
        for read in by_begin {
            while let Some(before) = ended.next_if(|before| before.ended < read.began) {
                if let Seen::Collection { rv, .. } = before.seen {
                    newest = newest.max(rv);
                }
            }
            if let Seen::Collection { rv, .. } = read.seen
                && rv < newest
            {
                wrong.push(format!("{}: of {rv}, after one of {newest} had ended\n  {read:?}", read.what));
            }
        }
        wrong
    }

    fn check_one(&self, read: &Read) -> Result<(), String> {
        match &read.seen {
            Seen::Collection { rv, state, group, limit } => {
                let floor = self.newest(&read.acknowledged);
                if *rv < floor {
                    return Err(format!("of {rv}, though a write at {floor} was acknowledged before"));
                }
                let mut expected = self.state(*rv, group.as_deref());
                if let Some(limit) = limit {
                    expected = expected.into_iter().take(*limit).collect();
                }
                if *state != expected {
                    return Err(format!("not the state at {rv}, which is {expected:?}"));
                }
            }
            Seen::Object { key, rv } => {
                let writes = self.0.iter().filter(|event| event.key == *key);
                let acknowledged = read.acknowledged.get(key).copied().unwrap_or_default();
                // What there was after the last acknowledged write, and after each later one.
                let mut states: Vec<Option<u64>> = vec![None];
                states.extend(writes.map(|event| (!event.deleted).then_some(event.rv)));
                if !states[acknowledged..].contains(rv) {
                    return Err(format!("after {acknowledged} acknowledged writes of {states:?}"));
                }
            }
        }
        Ok(())
    }
}

/// A history of one key that is created at 10, changed at 20 and deleted at 30.
fn log() -> Log {
    let event = |rv, deleted| Logged { rv, key: "a/x".to_owned(), group: "even".to_owned(), deleted };
    Log(vec![event(10, false), event(20, false), event(30, true)])
}

fn read(began: u64, ended: u64, acknowledged: usize, seen: Seen) -> Read {
    let acknowledged = BTreeMap::from([("a/x".to_owned(), acknowledged)]);
    Read { what: "read".to_owned(), began, ended, acknowledged, seen }
}

fn list(rv: u64, of: Option<u64>) -> Seen {
    let state = of.map(|rv| ("a/x".to_owned(), rv)).into_iter().collect();
    Seen::Collection { rv, state, group: None, limit: None }
}

#[test]
fn a_right_history_is_right() {
    let object = |rv| Seen::Object { key: "a/x".to_owned(), rv };
    let reads = [
        read(1, 2, 0, list(9, None)),
        read(3, 4, 1, list(10, Some(10))),
        // A write that is on its way may be seen or not.
        read(5, 8, 1, list(20, Some(20))),
        read(6, 7, 1, object(Some(10))),
        read(9, 10, 3, list(31, None)),
        read(11, 12, 3, object(None)),
    ];
    assert_eq!(log().check(&reads), Vec::<String>::new());
}

#[test]
fn wrong_reads_are_found() {
    for (what, reads) in [
        ("misses an acknowledged write", vec![read(1, 2, 2, list(15, Some(10)))]),
        ("misses an acknowledged deletion", vec![read(1, 2, 3, list(25, Some(20)))]),
        ("names a revision that it is not of", vec![read(1, 2, 1, list(20, Some(10)))]),
        ("holds what was never there", vec![read(1, 2, 0, list(10, Some(9)))]),
        ("lacks what is there", vec![read(1, 2, 0, list(12, None))]),
        ("goes back", vec![read(1, 2, 0, list(20, Some(20))), read(3, 4, 0, list(10, Some(10)))]),
        ("an old object", vec![read(1, 2, 2, Seen::Object { key: "a/x".to_owned(), rv: Some(10) })]),
        ("an object that is deleted", vec![read(1, 2, 3, Seen::Object { key: "a/x".to_owned(), rv: Some(20) })]),
    ] {
        assert_eq!(log().check(&reads).len(), 1, "{what}");
    }
}
