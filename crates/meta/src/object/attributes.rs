//! What reads need of an object without parsing it: its uid, its labels and its selectable fields.

use std::collections::HashSet;
use std::sync::Arc;

use super::parts::{self, Parts};
use informerd_memory::allocated;

/// uid, labels and selectable field values. They need one allocation, another one for the text of the object alone, and
/// labels that the objects of a workload share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// First uid, then the field values.
    own: Box<str>,
    labels: LabelSet,
}

/// Builds [`Attributes`]. Labels must be added sorted by key, and fields in the order of the resource's field table.
#[derive(Debug, Default)]
pub struct AttributesBuilder {
    own: String,
    labels: String,
}

/// The labels of one object: key and value of each, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LabelSet {
    text: Arc<str>,
}

/// The label sets of the objects of one cache, each once. A set that no object has any longer stays until the next
/// sweep. The table is swept when it has twice the sets that the last sweep left, so it never has many more sets than
/// there are objects.
#[derive(Debug)]
pub struct LabelSets {
    sets: HashSet<LabelSet>,
    /// The memory of the sets, of those that nobody has any longer, too.
    bytes: usize,
    sweep_at: usize,
}

/// A table with fewer sets is not swept.
const LEAST_SWEPT: usize = 1024;

// === impl Attributes ===

impl Attributes {
    /// The memory without the labels, which [`LabelSets::size`] counts once for all objects that share them.
    pub(super) fn size(&self) -> usize {
        allocated(self.own.len()) + allocated(size_of::<(usize, usize, Self)>())
    }

    /// Shares the labels of other attributes if they are equal. Returns whether they are.
    pub(super) fn share(&mut self, other: &Self) -> bool {
        let is_equal = self.labels == other.labels;
        if is_equal {
            self.labels = other.labels.clone();
        }
        is_equal
    }

    pub fn uid(&self) -> &str {
        self.own().next().unwrap_or_default()
    }

    /// Labels sorted by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut parts = Parts::of(&self.labels.text);
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// Whether the labels are the same. Cheap where objects share them.
    pub fn has_labels_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.labels.text, &other.labels.text) || self.labels == other.labels
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// The value of the field with this index in the resource's field table. "" when the object was parsed with
    /// another table.
    pub fn field(&self, index: usize) -> &str {
        self.own().nth(1 + index).unwrap_or_default()
    }

    /// The uid, and the values of all fields.
    pub(super) fn own(&self) -> Parts<'_> {
        Parts::of(&self.own)
    }
}

// === impl AttributesBuilder ===

impl AttributesBuilder {
    pub fn new(uid: &str) -> Self {
        let mut builder = Self::default();
        parts::push(&mut builder.own, uid);
        builder
    }

    /// Add the labels sorted by key.
    pub fn label(&mut self, key: &str, value: &str) {
        parts::push(&mut self.labels, key);
        parts::push(&mut self.labels, value);
    }

    pub fn field(&mut self, value: &str) {
        parts::push(&mut self.own, value);
    }

    pub fn build(self) -> Attributes {
        Attributes { own: self.own.into_boxed_str(), labels: LabelSet { text: self.labels.into() } }
    }
}

// === impl LabelSet ===

impl Default for LabelSet {
    fn default() -> Self {
        Self { text: "".into() }
    }
}

impl LabelSet {
    /// With both counts of references.
    fn size(&self) -> usize {
        allocated(2 * size_of::<usize>() + self.text.len())
    }
}

// === impl LabelSets ===

impl Default for LabelSets {
    fn default() -> Self {
        Self { sets: HashSet::new(), bytes: 0, sweep_at: LEAST_SWEPT }
    }
}

impl LabelSets {
    /// Makes the attributes share their labels with those that were seen before.
    pub(super) fn share(&mut self, attributes: &mut Attributes) {
        if let Some(known) = self.sets.get(&attributes.labels) {
            attributes.labels = known.clone();
            return;
        }
        if self.sets.len() >= self.sweep_at {
            self.sweep();
        }
        self.bytes += attributes.labels.size();
        self.sets.insert(attributes.labels.clone());
    }

    /// The memory of the sets, and of the table.
    pub fn size(&self) -> usize {
        // The table has one byte besides each place, and an eighth of the places is always free.
        self.bytes + self.sets.capacity() * 8 / 7 * (size_of::<LabelSet>() + 1)
    }

    /// Drops the sets that no object has.
    fn sweep(&mut self) {
        self.sets.retain(|set| Arc::strong_count(&set.text) > 1);
        self.bytes = self.sets.iter().map(LabelSet::size).sum();
        self.sweep_at = LEAST_SWEPT.max(2 * self.sets.len());
        self.sets.shrink_to(self.sweep_at);
    }
}

#[cfg(test)]
#[path = "attributes_tests.rs"]
mod tests;
