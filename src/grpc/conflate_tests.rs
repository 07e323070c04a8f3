use std::collections::HashMap as Map;

use proptest::prelude::*;

use super::*;

type State = (u64, u64);

/// A step of a test: a key changes, or the consumer takes a change.
#[derive(Clone, Debug)]
enum Step {
    Write(u8),
    Delete(u8),
    /// All of these at one revision. The consumer takes a change after each that is true.
    Expire([bool; 4]),
    Take,
}

/// Objects by key, with their uid and state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Replica {
    objects: Map<u8, State>,
    deleted: Vec<(u8, u64)>,
    created: Vec<(u8, u64)>,
    complaints: Vec<String>,
}

impl Replica {
    fn apply(&mut self, key: u8, change: &Change<(u8, State)>) {
        let (_, state) = change.value;
        let held = self.objects.get(&key).copied();
        match change.kind {
            EventType::Added => {
                if held.is_some() {
                    self.complaints.push(format!("added {key}, which is held"));
                }
                self.created.push((key, state.0));
                self.objects.insert(key, state);
            }
            EventType::Modified => {
                if held.map(|held| held.0) != Some(state.0) {
                    self.complaints.push(format!("modified {key}, which is another or none"));
                }
                if held.is_some_and(|held| held.1 >= state.1) {
                    self.complaints.push(format!("{key} went back"));
                }
                self.objects.insert(key, state);
            }
            EventType::Deleted => {
                if held.map(|held| held.0) != Some(state.0) {
                    self.complaints.push(format!("deleted {key}, which is another or none"));
                }
                self.deleted.push((key, state.0));
                self.objects.remove(&key);
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u8).prop_map(Step::Write),
        2 => (0..4_u8).prop_map(Step::Delete),
        1 => any::<[bool; 4]>().prop_map(Step::Expire),
        3 => Just(Step::Take),
    ];
    prop::collection::vec(step, 0..80)
}

fn change(kind: EventType, key: u8, state: State, rv: u64) -> Change<(u8, State)> {
    Change { kind, value: (key, state), rv: ResourceVersion(rv) }
}

/// The consumer takes a change. `log` are the keys and revisions of the changes that were not completely merged away
/// before they were taken.
fn take(
    conflator: &mut Conflator<u8, (u8, State)>,
    replica: &mut Replica,
    log: &[(u64, u8)],
    complete: &mut ResourceVersion,
) -> Result<(), TestCaseError> {
    if let Some(taken) = conflator.pop() {
        replica.apply(taken.value.0, &taken);
    }
    prop_assert!(conflator.complete() >= *complete, "complete went back");
    *complete = conflator.complete();
    // Every complete change is known to the replica, in this state or a later one.
    for (at, key) in log.iter().filter(|(at, _)| *at <= complete.get()) {
        let known = replica.objects.get(key).is_some_and(|state| state.1 >= *at)
            || replica.deleted.iter().any(|(deleted, _)| deleted == key);
        prop_assert!(known, "{key} at {at} is complete but not known");
    }
    Ok(())
}

proptest! {
    /// Replaying the conflated changes gives the same final state and includes every object that was created and
    /// deleted. A client that resumes from the complete revision gets every change that was not yet taken.
    #[test]
    fn tells_all_that_matters(steps in steps(), snapshot in prop::collection::vec(0..4_u8, 0..4)) {
        let mut conflator = Conflator::new();
        let (mut truth, mut replica) = (Replica::default(), Replica::default());
        let mut rv = 100;
        for key in snapshot {
            if !truth.objects.contains_key(&key) {
                rv += 1;
                let added = change(EventType::Added, key, (rv, rv), rv);
                truth.apply(key, &added);
                conflator.state(key, added, 1);
            }
        }
        conflator.reached(ResourceVersion(rv));
        let mut log: Vec<(u64, u8)> = Vec::new();
        let mut complete = ResourceVersion::ZERO;
        for step in steps {
            match step {
                Step::Write(key) => {
                    rv += 1;
                    let (kind, uid) = match truth.objects.get(&key) {
                        Some((uid, _)) => (EventType::Modified, *uid),
                        None => (EventType::Added, rv),
                    };
                    let written = change(kind, key, (uid, rv), rv);
                    truth.apply(key, &written);
                    log.push((rv, key));
                    conflator.push(key, written, 1);
                    conflator.reached(ResourceVersion(rv));
                }
                Step::Delete(key) => {
                    if let Some((uid, _)) = truth.objects.get(&key).copied() {
                        rv += 1;
                        let deleted = change(EventType::Deleted, key, (uid, rv), rv);
                        truth.apply(key, &deleted);
                        log.push((rv, key));
                        conflator.push(key, deleted, 1);
                        conflator.reached(ResourceVersion(rv));
                    }
                }
                Step::Expire(takes) => {
                    rv += 1;
                    let gone: Vec<_> = truth.objects.iter().map(|(key, (uid, _))| (*key, *uid)).collect();
                    log.extend(gone.iter().map(|(key, _)| (rv, *key)));
                    for (key, uid) in gone {
                        let deleted = change(EventType::Deleted, key, (uid, rv), rv);
                        truth.apply(key, &deleted);
                        conflator.push(key, deleted, 1);
                        conflator.reached(ResourceVersion(rv - 1));
                        if takes[key as usize] {
                            take(&mut conflator, &mut replica, &log, &mut complete)?;
                        }
                    }
                    conflator.reached(ResourceVersion(rv));
                }
                Step::Take => take(&mut conflator, &mut replica, &log, &mut complete)?,
            }
            prop_assert_eq!(conflator.bytes(), conflator.len());
        }
        while let Some(taken) = conflator.pop() {
            replica.apply(taken.value.0, &taken);
        }
        prop_assert_eq!(conflator.complete(), ResourceVersion(rv));
        prop_assert!(replica.complaints.is_empty(), "{:?}", replica.complaints);
        prop_assert_eq!(&replica.objects, &truth.objects);
        let of = |mut pairs: Vec<(u8, u64)>| { pairs.sort_unstable(); pairs };
        prop_assert_eq!(of(replica.deleted), of(truth.deleted));
        prop_assert_eq!(of(replica.created), of(truth.created));
        prop_assert!(conflator.last.is_empty() && conflator.bytes() == 0);
    }
}

#[test]
fn a_hot_key_waits_once() {
    let mut conflator = Conflator::new();
    for rv in 1..=1000 {
        let kind = if rv == 1 { EventType::Added } else { EventType::Modified };
        conflator.push(0_u8, change(kind, 0, (1, rv), rv), 1);
        conflator.reached(ResourceVersion(rv));
    }
    assert_eq!((conflator.len(), conflator.merged(), conflator.complete()), (1, 999, ResourceVersion(0)));
    let taken = conflator.pop().unwrap();
    assert_eq!(
        (taken.kind, taken.rv, conflator.complete()),
        (EventType::Added, ResourceVersion(1000), ResourceVersion(1000))
    );
}
