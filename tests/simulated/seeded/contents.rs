//! What objects say. Reads are compared with the log by keys and revisions; what a client is shown under a revision must
//! also be what was written at this revision.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::world::{RESOURCES, Resource};
use crate::support::client::{key, rv};
use crate::support::informer::Shown;

/// The contents that clients were shown since they were last judged. Each has the text of the first time.
#[derive(Default)]
pub(super) struct Contents(Mutex<BTreeMap<Content, String>>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Content {
    resource: usize,
    key: String,
    rv: u64,
    is_gone: bool,
    in_protobuf: bool,
    hash: u64,
}

/// The contents that were written to one resource, by key and revision: whether the object is deleted, and then its last
/// content, in JSON and in protobuf.
#[derive(Default)]
pub(super) struct Written(BTreeMap<(String, u64), (bool, [u64; 2])>);

// === impl Contents ===

impl Contents {
    pub(super) fn add(&self, resource: Resource, what: &str, shown: Shown<'_>) {
        let Shown { object, is_gone, in_protobuf } = shown;
        let (key, rv, hash) = (key(object), rv(object), hash(object, in_protobuf));
        let text = || format!("{what} shows {}", object.to_string().chars().take(400).collect::<String>());
        let content = Content { resource: resource.number, key, rv, is_gone, in_protobuf, hash };
        self.0.lock().entry(content).or_insert_with(text);
    }

    /// What clients were shown and nobody has written.
    pub(super) fn judge(&self, written: &[Written; RESOURCES.len()]) -> Vec<String> {
        let shown = std::mem::take(&mut *self.0.lock());
        let wrong = shown.into_iter().filter(|(content, _)| !written[content.resource].has(content));
        wrong.map(|(content, text)| format!("{text}\n  which was not written: {content:?}")).collect()
    }
}

// === impl Written ===

impl Written {
    pub(super) fn push(&mut self, is_deleted: bool, object: &Value) {
        let hashes = [false, true].map(|in_protobuf| hash(object, in_protobuf));
        self.0.insert((key(object), rv(object)), (is_deleted, hashes));
    }

    /// The store was set back to this revision.
    pub(super) fn rewind(&mut self, rv: u64) {
        self.0.retain(|(_, at), _| *at <= rv);
    }

    fn has(&self, content: &Content) -> bool {
        let at = |rv| (content.key.clone(), rv);
        let Some((is_deleted, hashes)) = self.0.get(&at(content.rv)) else { return false };
        let says = |hashes: &[u64; 2]| hashes[usize::from(content.in_protobuf)] == content.hash;
        match (content.is_gone, *is_deleted) {
            // It has left a selection. A daemon that has listed anew may know only a state from before the last one.
            (true, false) => self.0.range(at(0)..at(content.rv)).any(|(_, (_, hashes))| says(hashes)),
            (is_gone, is_deleted) => is_gone == is_deleted && says(hashes),
        }
    }
}

/// Of all that an object says, but for its type, which items of lists lack, and its revision, which is compared by itself: a
/// deletion changes it. Of protobuf, of what tests read.
fn hash(object: &Value, in_protobuf: bool) -> u64 {
    let (mut hasher, metadata) = (DefaultHasher::new(), &object["metadata"]);
    if in_protobuf {
        ["name", "namespace", "uid", "annotations"].iter().for_each(|name| metadata[*name].hash(&mut hasher));
    } else {
        let all = members(object, &["apiVersion", "kind", "metadata"]).chain(members(metadata, &["resourceVersion"]));
        all.for_each(|member| member.hash(&mut hasher));
    }
    hasher.finish()
}

/// In the order of their names.
fn members<'a>(object: &'a Value, but: &'a [&str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.as_object().into_iter().flatten().filter(move |(name, _)| !but.contains(&name.as_str()))
}

#[test]
fn contents_that_were_not_written_are_found() {
    let object = |rv: u64, n: u64| {
        let (rv, annotations) = (rv.to_string(), json!({"n": n.to_string()}));
        json!({"metadata": {"name": "x", "namespace": "a", "resourceVersion": rv, "annotations": annotations}})
    };
    let mut written = [Written::default(), Written::default()];
    for (rv, n, is_deleted) in [(10, 1, false), (20, 2, false), (30, 2, true), (40, 3, false)] {
        written[0].push(is_deleted, &object(rv, n));
    }
    written[0].rewind(30);
    for (what, rv, n, is_gone, is_written) in [
        ("created", 10, 1, false, true),
        ("changed", 20, 2, false, true),
        ("left a selection", 20, 1, true, true),
        ("deleted", 30, 2, true, true),
        ("says what it says later", 10, 2, false, false),
        ("says what it has said before", 20, 1, false, false),
        ("leaves a selection as it is afterwards", 20, 2, true, false),
        ("is deleted as it was before", 30, 1, true, false),
        ("is deleted and there", 30, 2, false, false),
        ("has a revision of another object", 15, 1, false, false),
        ("is of a time that was undone", 40, 3, false, false),
    ] {
        for in_protobuf in [false, true] {
            let (contents, object) = (Contents::default(), object(rv, n));
            contents.add(RESOURCES[0], "a get", Shown { object: &object, is_gone, in_protobuf });
            assert_eq!(contents.judge(&written).is_empty(), is_written, "{what}, in protobuf {in_protobuf}");
        }
    }
}
