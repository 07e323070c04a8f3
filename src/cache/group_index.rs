//! The groups of one scope, found by what they require of an object.

use std::collections::HashMap;
use std::sync::Arc;

use super::group::{Place, WatchGroup};
use crate::meta::Object;
use crate::selector::Predicate;

type Groups = Vec<Arc<WatchGroup>>;

/// The groups of one scope. Each stands in one place.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    plain: Groups,
    by_trigger: HashMap<Box<str>, Groups>,
    /// By the key of a label, then by its value.
    by_label: HashMap<Box<str>, HashMap<Box<str>, Groups>>,
}

// === impl Bucket ===

impl Bucket {
    /// The place for a new group. If it requires several labels, the one that the fewest other groups require with the
    /// same value.
    pub(super) fn place(&self, predicate: &Predicate, trigger: Option<&str>) -> Place {
        if let Some(value) = trigger {
            return Place::Trigger(value.into());
        }
        let others = |key: &str, value: &str| self.labelled(key, value).len();
        match predicate.labels.exact().min_by_key(|(key, value)| others(key, value)) {
            Some((key, value)) => Place::Label { key: key.into(), value: value.into() },
            None => Place::Plain,
        }
    }

    pub(super) fn insert(&mut self, group: &Arc<WatchGroup>) {
        let groups = match group.place.clone() {
            Place::Plain => &mut self.plain,
            Place::Trigger(value) => self.by_trigger.entry(value).or_default(),
            Place::Label { key, value } => self.by_label.entry(key).or_default().entry(value).or_default(),
        };
        groups.push(Arc::clone(group));
    }

    pub(super) fn remove(&mut self, group: &Arc<WatchGroup>) {
        match &group.place {
            Place::Plain => take(&mut self.plain, group),
            Place::Trigger(value) => take_from(&mut self.by_trigger, value, group),
            Place::Label { key, value } => {
                let Some(values) = self.by_label.get_mut(key) else { return };
                take_from(values, value, group);
                if values.is_empty() {
                    self.by_label.remove(key);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.by_trigger.is_empty() && self.by_label.is_empty()
    }

    /// Offers each group once that may select the object or the previous object, and some that do not. `triggers` are
    /// the trigger values of both, the second only if it differs.
    pub(super) fn offer<'a>(
        &'a self,
        object: &Object,
        prev: Option<&Object>,
        triggers: [Option<&str>; 2],
        offer: &mut impl FnMut(&'a Arc<WatchGroup>),
    ) {
        self.plain.iter().for_each(&mut *offer);
        for value in triggers.into_iter().flatten() {
            self.by_trigger.get(value).into_iter().flatten().for_each(&mut *offer);
        }
        if self.by_label.is_empty() {
            return;
        }
        for (key, value) in object.attributes.labels() {
            self.labelled(key, value).iter().for_each(&mut *offer);
        }
        let Some(prev) = prev.filter(|prev| !prev.attributes.has_labels_of(&object.attributes)) else { return };
        for (key, value) in prev.attributes.labels() {
            if object.attributes.label(key) != Some(value) {
                self.labelled(key, value).iter().for_each(&mut *offer);
            }
        }
    }

    fn labelled(&self, key: &str, value: &str) -> &[Arc<WatchGroup>] {
        self.by_label.get(key).and_then(|values| values.get(value)).map_or(&[], Vec::as_slice)
    }
}

fn take(groups: &mut Groups, group: &Arc<WatchGroup>) {
    if let Some(at) = groups.iter().position(|other| Arc::ptr_eq(other, group)) {
        groups.swap_remove(at);
    }
}

/// Leaves no empty entry behind.
fn take_from(by_value: &mut HashMap<Box<str>, Groups>, value: &str, group: &Arc<WatchGroup>) {
    let Some(groups) = by_value.get_mut(value) else { return };
    take(groups, group);
    if groups.is_empty() {
        by_value.remove(value);
    }
}
