use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use tokio::time::Instant;

use super::groups::{MAX_RELIST_EVALUATIONS, WatchGroups, view};
use super::spec::EndReason;
use super::testing::{object, plain, predicate};
use crate::meta::{EventType, ResourceVersion, Scope, WatchCacheEvent};
use crate::selector::Predicate;

const LABELS: [&[(&str, &str)]; 6] = [
    &[],
    &[("app", "db")],
    &[("app", "web")],
    &[("app", "web"), ("tier", "a")],
    &[("app", "db"), ("tier", "b")],
    &[("app", ""), ("tier", "a"), ("zone", "x")],
];
const SELECTORS: [&str; 13] = [
    "",
    "app",
    "!app",
    "app=web",
    "app=db",
    "app=",
    "app in (web)",
    "app in (web,db)",
    "app!=web",
    "app=web,app=db",
    "app=web,tier=a",
    "tier=a,zone=x",
    "zone=x,app notin (web)",
];
const NODES: [&str; 3] = ["", "spec.nodeName=n1", "spec.nodeName=n2"];

fn predicates() -> Vec<Predicate> {
    let scopes = [Scope::all(), Scope::namespace("a")];
    let all = scopes.iter().flat_map(|scope| SELECTORS.iter().map(move |labels| (scope, labels)));
    all.flat_map(|(scope, labels)| NODES.map(|fields| predicate(scope.clone(), labels, fields))).collect()
}

/// An event of the object `x` in namespace a or b, with these labels and this node, and with these before it.
fn event(
    kind: EventType,
    namespace: &str,
    now: (usize, usize),
    before: Option<(usize, usize)>,
) -> Arc<WatchCacheEvent> {
    let state = |rv, (labels, node): (usize, usize)| {
        Arc::new(object(namespace, "x", rv, LABELS[labels], ["", "n1", "n2"][node]))
    };
    let prev = before.map(|before| state(1, before));
    Arc::new(WatchCacheEvent { kind, rv: ResourceVersion(2), object: state(2, now), prev, received: Instant::now() })
}

fn events() -> impl Strategy<Value = Arc<WatchCacheEvent>> {
    let state = || (0..LABELS.len(), 0..3_usize);
    (0..3_usize, any::<bool>(), state(), state()).prop_map(|(kind, a, now, before)| {
        let namespace = if a { "a" } else { "b" };
        match kind {
            0 => event(EventType::Added, namespace, now, None),
            1 => event(EventType::Modified, namespace, now, Some(before)),
            _ => event(EventType::Deleted, namespace, before, Some(before)),
        }
    })
}

proptest! {
    /// Every group gets the events that its predicate selects, each once, also after other groups have come and gone.
    #[test]
    fn the_index_finds_the_groups_that_a_search_of_all_would_find(
        members in prop::collection::vec(any::<bool>(), 2 * 13 * 3),
        events in prop::collection::vec(events(), 1..20),
    ) {
        let mut groups = WatchGroups::new(Some(0));
        let all = predicates();
        let joined: Vec<_> = all.iter().map(|predicate| groups.join(predicate)).collect();
        for ((group, slot), stays) in joined.iter().zip(&members) {
            if !stays {
                groups.leave(group, *slot);
            }
        }
        // Some selectors mean the same: their watchers share a group.
        let stay: HashSet<&Predicate> = all.iter().zip(&members).filter(|(_, stays)| **stays).map(|(p, _)| p).collect();
        let mut touched = Vec::new();
        for event in &events {
            groups.dispatch(event, &mut touched);
        }
        prop_assert_eq!(groups.len(), stay.len());
        for group in groups.iter() {
            prop_assert!(stay.contains(&group.predicate));
            let selected = events.iter().filter(|event| view(&group.predicate, event).is_some()).count();
            prop_assert_eq!(group.ring.lock().len(), selected, "{:?}", group.predicate);
        }
        for ((group, slot), stays) in joined.iter().zip(&members) {
            if *stays {
                groups.leave(group, *slot);
            }
        }
        prop_assert!(groups.is_indexed_nowhere());
    }
}

#[test]
fn an_event_costs_nothing_for_groups_that_require_other_labels_or_nodes() {
    let mut groups = WatchGroups::new(Some(0));
    for node in ["n1", "n2", "n3"] {
        groups.join(&predicate(Scope::all(), "", &format!("spec.nodeName={node}")));
    }
    let moved = event(EventType::Modified, "a", (0, 2), Some((0, 1)));
    assert_eq!(groups.dispatch(&moved, &mut Vec::new()), 2);
    let mut groups = WatchGroups::new(Some(0));
    for number in 0..10_000 {
        groups.join(&predicate(Scope::all(), &format!("part-of=shop,app=app-{number}"), ""));
    }
    let shop = |rv, app: &str| Arc::new(object("a", "x", rv, &[("app", app), ("part-of", "shop")], ""));
    let event = |before, now| {
        let prev = Some(shop(1, before));
        let (kind, received) = (EventType::Modified, Instant::now());
        Arc::new(WatchCacheEvent { kind, rv: ResourceVersion(2), object: shop(2, now), prev, received })
    };
    let mut touched = Vec::new();
    // The first group stands with the label that all require, the others with their own.
    assert!(groups.dispatch(&event("app-7", "app-7"), &mut touched) <= 2);
    assert!(groups.dispatch(&event("app-7", "app-8"), &mut touched) <= 3);
    assert!(groups.dispatch(&event("other", "another"), &mut touched) <= 1);
    assert_eq!(touched.len(), 2);
}

/// Beyond the bound, nobody looks who holds what is gone.
#[test]
fn a_relist_searches_for_holders_within_a_bound() {
    const GROUPS: usize = 200;
    for (gone, ended) in [(MAX_RELIST_EVALUATIONS / GROUPS, 1), (MAX_RELIST_EVALUATIONS / GROUPS + 1, GROUPS)] {
        let mut groups = WatchGroups::new(None);
        for number in 0..GROUPS {
            groups.join(&predicate(Scope::namespace(&format!("n{number}")), "", ""));
        }
        let gone: Vec<_> = (0..gone).map(|number| Arc::new(plain("n7", &format!("x{number}"), 1))).collect();
        assert_eq!(groups.close_holders(&gone, EndReason::Relisted), ended);
        assert_eq!((groups.len(), groups.watchers()), (GROUPS - ended, GROUPS - ended));
    }
}
