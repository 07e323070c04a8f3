//! The objects of the model, byte by byte, and the states of its store.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::codec::{json, protobuf};
use crate::grpc::pb::v1;
use crate::meta::{Encoding, EventType, FieldTable, Object};

/// An object as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) encoding: Encoding,
    pub(super) name: String,
    /// No other object has it, in no history of the store.
    pub(super) uid: String,
    pub(super) rv: u64,
    /// The number of its labels in [`LABELS`].
    pub(super) labels: usize,
    pub(super) data: String,
}

/// Objects by name.
pub(super) type State = BTreeMap<String, Arc<Written>>;

/// The state from each revision on, and whether only a list has shown it.
pub(super) type Truth = BTreeMap<u64, (State, bool)>;

/// The labels that objects have, and what clients select by names and by a label: everything, or any of these.
const LABELS: [&[(&str, &str)]; 4] = [&[], &[("app", "web")], &[("tier", "a")], &[("app", "web"), ("tier", "a")]];
const SELECTIONS: [&[(&[&str], &str)]; 3] = [&[(&[], "")], &[(&[], "app")], &[(&["c0", "c1"], "app"), (&[], "tier")]];

pub(super) fn filters(selects: usize) -> Vec<v1::Filter> {
    let filter = |(names, label): &(&[&str], &str)| v1::Filter {
        names: names.iter().copied().map(str::to_owned).collect(),
        label_selector: (*label).to_owned(),
        ..Default::default()
    };
    SELECTIONS[selects].iter().map(filter).collect()
}

/// What is selected of the state at this revision.
pub(super) fn at(truth: &Truth, selects: usize, rv: u64) -> State {
    let (_, (state, _)) = truth.range(..=rv).next_back().unwrap();
    let selected = state.iter().filter(|(_, written)| written.is_selected(selects));
    selected.map(|(name, written)| (name.clone(), Arc::clone(written))).collect()
}

/// What is sent of the changes at this revision.
pub(super) fn sent(truth: &Truth, rv: u64) -> Vec<(EventType, Object)> {
    let (before, after) = (at(truth, 0, rv - 1), at(truth, 0, rv));
    let changed = after.iter().filter(|(name, now)| before.get(*name) != Some(*now));
    let changed = changed.map(|(name, now)| {
        let kind = if before.contains_key(name) { EventType::Modified } else { EventType::Added };
        (kind, now.object())
    });
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    changed.chain(gone.map(|(_, last)| (EventType::Deleted, last.deleted(rv).object()))).collect()
}

/// Appends a field to a protobuf message.
fn put(number: u32, value: impl Into<Vec<u8>>, message: &mut Vec<u8>) {
    let value: Vec<u8> = value.into();
    prost::encoding::bytes::encode(number, &value, message);
}

// === impl Written ===

impl Written {
    /// The bytes that a client gets.
    pub(super) fn bytes(&self) -> Vec<u8> {
        if self.encoding == Encoding::Json {
            return self.message();
        }
        let (mut kind, mut envelope) = (Vec::new(), b"k8s\0".to_vec());
        put(1, "v1", &mut kind);
        put(2, "ConfigMap", &mut kind);
        put(1, kind, &mut envelope);
        put(2, self.message(), &mut envelope);
        // The encoding and the type of the content.
        put(3, "", &mut envelope);
        put(4, "", &mut envelope);
        envelope
    }

    /// The object as it comes to the cache.
    pub(super) fn object(&self) -> Object {
        let (message, table) = (self.message(), FieldTable::default());
        if self.encoding == Encoding::Json {
            return json::parse_item(&message, &table).unwrap().0;
        }
        protobuf::parse_item(&message, &table).unwrap()
    }

    /// The object as it is sent when it is no longer selected.
    pub(super) fn left(&self, rv: u64) -> Self {
        Self { rv, ..self.clone() }
    }

    /// The object as it is sent when it is deleted.
    pub(super) fn deleted(&self, rv: u64) -> Self {
        Self { data: format!("{} deleted", self.data), ..self.left(rv) }
    }

    fn is_selected(&self, selects: usize) -> bool {
        let has = |label: &str| label.is_empty() || LABELS[self.labels].iter().any(|(key, _)| *key == label);
        let is_named = |names: &[&str]| names.is_empty() || names.contains(&&*self.name);
        SELECTIONS[selects].iter().any(|(names, label)| is_named(names) && has(label))
    }

    fn message(&self) -> Vec<u8> {
        let (labels, name, uid, data) = (LABELS[self.labels], &*self.name, &*self.uid, &*self.data);
        let rv = self.rv.to_string();
        if self.encoding == Encoding::Json {
            let labels: Vec<_> = labels.iter().map(|(key, value)| format!(r#""{key}":"{value}""#)).collect();
            let labels = labels.join(",");
            let text = format!(
                r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"{uid}","resourceVersion":"{rv}","labels":{{{labels}}}}},"data":{{"at":"{data}"}}}}"#
            );
            return text.into_bytes();
        }
        let entry = |key: &str, value: &str| {
            let mut entry = Vec::new();
            put(1, key, &mut entry);
            put(2, value, &mut entry);
            entry
        };
        let (mut metadata, mut message) = (Vec::new(), Vec::new());
        for (number, value) in [(1, name), (3, "a"), (5, uid), (6, &*rv)] {
            put(number, value, &mut metadata);
        }
        for &(key, value) in labels {
            put(11, entry(key, value), &mut metadata);
        }
        put(1, metadata, &mut message);
        put(2, entry("at", data), &mut message);
        message
    }
}
