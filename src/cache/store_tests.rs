use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cache::testing::{names, plain};

fn snapshot(keys: &[(&str, &str)]) -> Snapshot {
    let mut store = Store::default();
    for (i, (namespace, name)) in keys.iter().enumerate() {
        store.insert(Arc::new(plain(namespace, name, i as u64 + 1)));
    }
    Snapshot::new(ResourceVersion(keys.len() as u64), store)
}

#[test]
fn a_namespace_is_a_key_range_of_its_own() {
    let snapshot = snapshot(&[("a", "x"), ("a", "y"), ("a-b", "x"), ("a0", "x"), ("ab", "x")]);
    let list = |scope: &Scope, after| names(snapshot.range(scope, after));
    assert_eq!(list(&Scope::namespace("a"), None), ["a/x@1", "a/y@2"]);
    assert_eq!(list(&Scope::namespace("a"), Some("a/x")), ["a/y@2"]);
    assert_eq!(list(&Scope::namespace("a"), Some("a-b/x")), ["a/x@1", "a/y@2"], "a start before the range");
    assert!(list(&Scope::namespace("a"), Some("a0/x")).is_empty(), "a start after the range");
    assert!(list(&Scope::namespace("b"), None).is_empty());
    assert_eq!(list(&Scope::all(), None), ["a-b/x@3", "a/x@1", "a/y@2", "a0/x@4", "ab/x@5"]);
    assert_eq!(list(&Scope::all(), Some("a/x")), ["a/y@2", "a0/x@4", "ab/x@5"]);
}

#[test]
fn a_name_is_found_in_its_scope() {
    let namespaced = snapshot(&[("a", "x"), ("b", "x"), ("b", "y")]);
    let one = Scope { namespace: Some("b".into()), name: Some("x".into()) };
    assert_eq!(names(namespaced.range(&one, None)), ["b/x@2"]);
    assert!(names(namespaced.range(&one, Some("b/x"))).is_empty());
    let everywhere = Scope { namespace: None, name: Some("x".into()) };
    assert_eq!(names(namespaced.range(&everywhere, None)), ["a/x@1", "b/x@2"]);
    assert_eq!(names(namespaced.range(&everywhere, Some("a/x"))), ["b/x@2"]);

    let cluster = snapshot(&[("", "x"), ("", "y")]);
    assert_eq!(names(cluster.range(&everywhere, None)), ["x@1"]);
    assert!(names(cluster.range(&everywhere, Some("x"))).is_empty());
    assert!(names(cluster.range(&Scope { namespace: None, name: Some("z".into()) }, None)).is_empty());
}

proptest! {
    #[test]
    fn store_equals_a_btree_map(
        ops in prop::collection::vec((0..4_usize, 0..30_usize, any::<bool>()), 0..300),
        after in prop::option::of((0..4_usize, 0..30_usize)),
    ) {
        const NAMESPACES: [&str; 4] = ["a", "a-b", "a0", "b"];
        let mut store = Store::default();
        let mut model = BTreeMap::new();
        for (i, (namespace, name, insert)) in ops.into_iter().enumerate() {
            let object = Arc::new(plain(NAMESPACES[namespace], &format!("n{name}"), i as u64 + 1));
            if insert {
                store.insert(object.clone());
                model.insert(object.key.as_str().to_owned(), object);
            } else {
                store.remove(&object.key);
                model.remove(object.key.as_str());
            }
        }
        prop_assert_eq!(store.bytes(), model.values().map(|object| object.size()).sum::<usize>());
        prop_assert_eq!(store.len(), model.len());
        prop_assert_eq!(names(store.last().into_iter()), names(model.values().next_back().into_iter()));
        let after = after.map(|(namespace, name)| format!("{}/n{name}", NAMESPACES[namespace]));
        let snapshot = Snapshot::new(ResourceVersion(1000), store);
        prop_assert_eq!(snapshot.is_empty(), model.is_empty());
        for namespace in [None, Some("a"), Some("a-b"), Some("a0"), Some("b"), Some("c")] {
            for name in [None, Some("n1")] {
                let scope = Scope { namespace: namespace.map(Into::into), name: name.map(Into::into) };
                let count = model.values().filter(|object| scope.contains(&object.key)).count();
                prop_assert_eq!(snapshot.count_up_to(&scope, 3), count.min(3));
                let expected = model.values().filter(|object| {
                    scope.contains(&object.key) && after.as_deref().is_none_or(|after| object.key.as_str() > after)
                });
                prop_assert_eq!(names(snapshot.range(&scope, after.as_deref())), names(expected));
            }
        }
    }
}
