use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cache::testing::{names, plain};

proptest! {
    #[test]
    fn store_equals_a_btree_map(
        ops in prop::collection::vec((0..4_usize, 0..30_usize, any::<bool>()), 0..300),
        after in prop::option::of((0..4_usize, 0..30_usize)),
        namespaced: bool,
    ) {
        let namespaces = if namespaced { ["a", "a-b", "a0", "b"] } else { [""; 4] };
        let mut store = Store::default();
        let mut model = BTreeMap::new();
        for (i, (namespace, name, insert)) in ops.into_iter().enumerate() {
            let object = Arc::new(plain(namespaces[namespace], &format!("n{name}"), i as u64 + 1));
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
        let after = after.map(|(namespace, name)| ObjectKey::new(namespaces[namespace], &format!("n{name}")));
        let after = after.as_ref().map(ObjectKey::as_str);
        let snapshot = Snapshot::new(ResourceVersion(1000), store);
        prop_assert_eq!(snapshot.is_empty(), model.is_empty());
        for namespace in [None, Some("a"), Some("a-b"), Some("a0"), Some("b"), Some("c")] {
            for name in [None, Some("n1")] {
                let scope = Scope { namespace: namespace.map(Into::into), name: name.map(Into::into) };
                let count = model.values().filter(|object| scope.contains(&object.key)).count();
                prop_assert_eq!(snapshot.count_up_to(&scope, 3), count.min(3));
                let expected = model.values().filter(|object| {
                    scope.contains(&object.key) && after.is_none_or(|after| object.key.as_str() > after)
                });
                prop_assert_eq!(names(snapshot.range(&scope, after)), names(expected));
            }
        }
    }
}
