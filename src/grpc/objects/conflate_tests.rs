//! What the model (`model_tests.rs`) does not show: that changes of one key take the room of one.

use super::*;

#[test]
fn a_hot_key_waits_once() {
    let mut conflator = Conflator::new();
    for rv in 1..=1000 {
        let kind = if rv == 1 { EventType::Added } else { EventType::Modified };
        conflator.push(0_u8, Change { kind, value: (), rv: ResourceVersion(rv) }, 1);
        conflator.reached(ResourceVersion(rv));
    }
    assert_eq!((conflator.len(), conflator.bytes(), conflator.merged()), (1, 1, 999));
    assert_eq!(conflator.complete(), ResourceVersion(0));
    let taken = conflator.pop().unwrap();
    assert_eq!(
        (taken.kind, taken.rv, conflator.complete()),
        (EventType::Added, ResourceVersion(1000), ResourceVersion(1000))
    );
    assert!(conflator.last.is_empty() && conflator.bytes() == 0);
}
