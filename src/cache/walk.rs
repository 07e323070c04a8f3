//! A walk over the objects of a state that a predicate selects.

use std::sync::Arc;

use super::store::Snapshot;
use crate::meta::{Object, ObjectKey};
use crate::selector::Predicate;

/// The selected objects of a snapshot in key order, from the first key greater than `after`. Walking a large collection
/// takes milliseconds, so it is done in steps, and other tasks can run in between.
#[derive(Clone, Debug)]
pub struct Walk {
    snapshot: Snapshot,
    predicate: Predicate,
    /// The last key that was examined.
    after: Option<ObjectKey>,
    is_over: bool,
    /// The number of objects that were examined.
    looked: usize,
}

/// Number of objects examined in one step, selected or not.
pub(super) const LOOKS: usize = 2048;

// === impl Walk ===

impl Walk {
    pub fn new(snapshot: Snapshot, predicate: Predicate, after: Option<ObjectKey>) -> Self {
        let is_over = predicate.matches_nothing();
        Self { snapshot, predicate, after, is_over, looked: 0 }
    }

    /// The same walk over the objects of all shards.
    #[must_use]
    pub fn in_all_shards(self) -> Self {
        Self { predicate: self.predicate.in_all_shards(), ..self }
    }

    /// Passes up to `max` more objects to `each`. There may be fewer, or even none, because one step examines a limited
    /// number of objects. Returns false once no object of the scope follows, selected or not.
    pub fn step(&mut self, max: usize, each: impl FnMut(&Arc<Object>)) -> bool {
        self.look(LOOKS, max, each)
    }

    /// Passes all remaining objects to `each`, and lets other tasks run between the steps.
    pub async fn all(mut self, mut each: impl FnMut(&Arc<Object>)) {
        while self.step(usize::MAX, &mut each) {
            tokio::task::yield_now().await;
        }
    }

    /// The number of remaining objects. This needs a walk, unless it covers a whole resource and has not begun.
    pub async fn count(self) -> u64 {
        if self.after.is_none() && self.predicate.is_everything() {
            return self.snapshot.len() as u64;
        }
        let mut count = 0;
        self.all(|_| count += 1).await;
        count
    }

    /// Whether an object follows that this predicate selects. It has the same scope.
    pub async fn is_followed_by(&self, predicate: Predicate) -> bool {
        let mut walk = Self { predicate, ..self.clone() };
        loop {
            let mut found = false;
            let more = walk.step(1, |_| found = true);
            if found || !more {
                return found;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The number of objects that were examined.
    pub(super) fn looked(&self) -> usize {
        self.looked
    }

    /// The key after which the walk continues: the last one examined.
    pub fn into_after(self) -> Option<ObjectKey> {
        self.after
    }

    fn look(&mut self, looks: usize, max: usize, mut each: impl FnMut(&Arc<Object>)) -> bool {
        if self.is_over {
            return false;
        }
        let mut objects = self.snapshot.range(&self.predicate.scope, self.after.as_ref().map(ObjectKey::as_str));
        let (mut found, mut last) = (0, None);
        for object in objects.by_ref().take(looks) {
            self.looked += 1;
            last = Some(&object.key);
            if self.predicate.matches(object) {
                each(object);
                found += 1;
                if found == max {
                    break;
                }
            }
        }
        let last = last.cloned();
        self.is_over = objects.next().is_none();
        drop(objects);
        self.after = last.or(self.after.take());
        !self.is_over
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cache::store::Store;
    use crate::cache::testing::{names, object, predicate};
    use crate::meta::{ResourceVersion, Scope};

    const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];

    proptest! {
        /// A walk with steps of any size gives the same objects as a filter of the whole collection, and detects the
        /// end.
        #[test]
        fn steps_make_up_the_whole(
            objects in prop::collection::btree_map((0..3_usize, 0..40_usize), any::<bool>(), 0..100),
            after in prop::option::of((0..3_usize, 0..40_usize)),
            scope in (prop::option::of(0..3_usize), prop::option::weighted(0.2, 0..40_usize)),
            labels in prop::sample::select(vec!["", "x=y", "x!=y", "x=none"]),
            steps in prop::collection::vec((1..6_usize, 1..4_usize), 1..20),
        ) {
            let mut store = Store::default();
            for ((namespace, name), labelled) in &objects {
                let labels: &[_] = if *labelled { &[("x", "y")] } else { &[] };
                store.insert(Arc::new(object(NAMESPACES[*namespace], &format!("n{name:02}"), 1, labels, "")));
            }
            let snapshot = Snapshot::new(ResourceVersion(9), store);
            let after = after.map(|(namespace, name)| ObjectKey::new(NAMESPACES[namespace], &format!("n{name:02}")));
            let (namespace, name) = (scope.0.map(|n| NAMESPACES[n].into()), scope.1.map(|n| format!("n{n:02}").into()));
            let predicate = predicate(Scope { namespace, name }, labels, "");

            let follow: Vec<_> = snapshot.range(&predicate.scope, after.as_ref().map(ObjectKey::as_str)).collect();
            let mut walk = Walk::new(snapshot.clone(), predicate.clone(), after);
            let counted = futures_util::FutureExt::now_or_never(walk.clone().count()).unwrap();
            let (mut walked, mut looked) = (Vec::new(), 0);
            for (looks, max) in steps.iter().cycle() {
                let before = walked.len();
                let more = walk.look(*looks, *max, |object| walked.push(object.clone()));
                prop_assert!(walked.len() - before <= *max);
                let last = walk.clone().into_after();
                let place = follow.iter().take_while(|object| Some(&object.key) <= last.as_ref()).count();
                prop_assert!(place - looked <= *looks && (place > looked || !more));
                prop_assert_eq!(more, place < follow.len());
                looked = place;
                if !more {
                    break;
                }
            }
            prop_assert!(!walk.look(9, 9, |_| unreachable!()));
            let whole = follow.into_iter().filter(|object| predicate.matches(object));
            prop_assert_eq!(names(walked.iter()), names(whole));
            prop_assert_eq!(counted, walked.len() as u64);
        }
    }
}
