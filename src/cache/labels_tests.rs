//! Labels that the objects of one cache share.

use super::testing::*;
use super::*;
use crate::meta::{EventType, Object, ResourceVersion};

const OBJECTS: usize = 100;
/// Characters of each label.
const LONG: usize = 200;

/// What a cache of objects with these labels counts. Half of them are listed, the others come as events, and all change
/// without a change of their labels.
async fn used(label: impl Fn(usize) -> String) -> usize {
    let budget = Budget::new(1 << 30);
    let (mut writer, _cache, _dispatcher) = cache(|config| config.budget = budget.clone());
    let object = |i: usize, rv: usize, field: &str| -> Object {
        object("a", &format!("object-{i:03}"), rv as u64, &[("app", &label(i))], field)
    };
    let listed = (0..OBJECTS / 2).map(|i| writer.known(object(i, i + 1, "")).unwrap_or_else(Arc::new)).collect();
    writer.replace(listed, ResourceVersion(OBJECTS as u64)).await.unwrap();
    for i in OBJECTS / 2..OBJECTS {
        writer.apply(EventType::Added, object(i, OBJECTS + i, "")).await.unwrap();
    }
    for i in 0..OBJECTS {
        writer.apply(EventType::Modified, object(i, 2 * OBJECTS + i, "node-1")).await.unwrap();
    }
    budget.used()
}

#[tokio::test(start_paused = true)]
async fn equal_labels_are_counted_once_and_others_each() {
    let (equal, other) = (used(|_| "x".repeat(LONG)).await, used(|i| format!("{i:0LONG$}")).await);
    let more = other - equal;
    assert!((LONG * (OBJECTS - 1)..2 * LONG * OBJECTS).contains(&more), "{equal} and {other} bytes");
}
