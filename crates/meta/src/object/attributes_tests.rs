use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

type Labels = BTreeMap<String, String>;

fn attributes(uid: &str, labels: &Labels, fields: &[String]) -> Attributes {
    let mut builder = AttributesBuilder::new(uid);
    labels.iter().for_each(|(key, value)| builder.label(key, value));
    fields.iter().for_each(|value| builder.field(value));
    builder.build()
}

fn app(name: &str) -> Attributes {
    attributes("u", &Labels::from([("app".into(), name.into())]), &[])
}

/// Strings whose lengths need one character or two.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![".{0,5}", "[a-z/é]{50,150}"]
}

fn labels() -> impl Strategy<Value = Labels> {
    proptest::collection::btree_map(text(), text(), 0..6)
}

#[test]
fn a_set_is_counted_once_and_goes_with_its_last_object() {
    let (mut sets, mut first, mut second) = (LabelSets::default(), app("web"), app("web"));
    let own = first.size();
    sets.share(&mut first);
    let size = sets.size();
    assert!(size >= first.labels.size());
    sets.share(&mut second);
    assert!(Arc::ptr_eq(&first.labels.text, &second.labels.text));
    assert_eq!((first.size(), second.size(), sets.size()), (own, own, size));
    drop(first);
    sets.sweep();
    assert_eq!(sets.sets.len(), 1);
    drop(second);
    sets.sweep();
    assert_eq!((sets.sets.len(), sets.bytes), (0, 0));
}

#[test]
fn the_table_stays_small_while_labels_come_and_go() {
    let mut sets = LabelSets::default();
    let held: Vec<_> = (0..LEAST_SWEPT / 2)
        .map(|i| {
            let mut attributes = app(&format!("held-{i}"));
            sets.share(&mut attributes);
            attributes
        })
        .collect();
    let mut most = 0;
    for i in 0..20 * LEAST_SWEPT {
        sets.share(&mut app(&i.to_string()));
        most = most.max(sets.sets.len());
    }
    assert_eq!(most, LEAST_SWEPT);
    // Those that objects have are still there.
    for attributes in &held {
        let mut again = attributes.clone();
        again.labels = LabelSet { text: (&*attributes.labels.text).into() };
        sets.share(&mut again);
        assert!(Arc::ptr_eq(&again.labels.text, &attributes.labels.text));
    }
    // With more objects than that, it grows.
    let more: Vec<_> = (0..3 * LEAST_SWEPT)
        .map(|i| {
            let mut attributes = app(&format!("more-{i}"));
            sets.share(&mut attributes);
            attributes
        })
        .collect();
    assert!(sets.sets.len() >= more.len());
    let held_bytes: usize = held.iter().chain(&more).map(|attributes| attributes.labels.size()).sum();
    assert!(sets.bytes >= held_bytes);
}

proptest! {
    /// Sharing changes nothing that can be seen: attributes show what was put in, and are equal exactly if that was.
    #[test]
    fn shared_attributes_are_the_plain_ones(
        objects in proptest::collection::vec((text(), labels(), proptest::collection::vec(text(), 0..4)), 1..8),
        copies in 1..3usize,
    ) {
        let mut sets = LabelSets { sweep_at: 2, ..LabelSets::default() };
        let mut all = Vec::new();
        for _ in 0..copies {
            for (uid, labels, fields) in &objects {
                let mut attributes = attributes(uid, labels, fields);
                sets.share(&mut attributes);
                all.push((attributes, (uid, labels, fields)));
            }
        }
        for (attributes, (uid, labels, fields)) in &all {
            prop_assert_eq!(attributes.uid(), uid.as_str());
            let wanted = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            prop_assert!(attributes.labels().eq(wanted));
            for (index, value) in fields.iter().enumerate() {
                prop_assert_eq!(attributes.field(index), value.as_str());
            }
            prop_assert_eq!((attributes.field(fields.len()), attributes.label("no\nkey")), ("", None));
            for (key, value) in *labels {
                prop_assert_eq!(attributes.label(key), Some(value.as_str()));
            }
            for (other, plain) in &all {
                prop_assert_eq!(attributes == other, (uid, labels, fields) == (&plain.0, &plain.1, &plain.2));
                let is_shared = Arc::ptr_eq(&attributes.labels.text, &other.labels.text);
                prop_assert_eq!(is_shared, *labels == plain.1);
            }
        }
    }
}
