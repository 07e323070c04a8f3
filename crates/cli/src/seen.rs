//! Remembers what a watch has printed, so that a state that is sent again prints only the difference.

use std::collections::HashMap;

use informerd_api::v1;

use super::print::Change;

/// The objects that exist according to the printed lines.
#[derive(Debug, Default)]
pub(super) struct Seen {
    objects: HashMap<(String, String), Known>,
    /// The number of complete states so far.
    generation: u64,
}

#[derive(Debug)]
struct Known {
    key: v1::Key,
    generation: u64,
}

// === impl Seen ===

impl Seen {
    /// Begins a new complete state.
    pub(super) fn begin(&mut self) {
        self.generation += 1;
    }

    /// Records an object. Returns the changes to print.
    pub(super) fn put(&mut self, key: &v1::Key) -> Vec<(Change, v1::Key)> {
        let known = Known { key: key.clone(), generation: self.generation };
        match self.objects.insert((key.namespace.clone(), key.name.clone()), known).map(|before| before.key) {
            None => vec![(Change::Added, key.clone())],
            Some(before) if before.uid != key.uid => vec![(Change::Deleted, before), (Change::Added, key.clone())],
            Some(before) if before.resource_version == key.resource_version => vec![],
            Some(_) => vec![(Change::Modified, key.clone())],
        }
    }

    /// Records that an object is gone. Returns whether that is new.
    pub(super) fn remove(&mut self, key: &v1::Key) -> bool {
        self.objects.remove(&(key.namespace.clone(), key.name.clone())).is_some()
    }

    /// Ends the complete state. Returns the objects that are gone.
    pub(super) fn end(&mut self) -> Vec<v1::Key> {
        let generation = self.generation;
        let mut gone: Vec<_> = self.objects.extract_if(|_, known| known.generation < generation).collect();
        gone.sort_by(|a, b| a.0.cmp(&b.0));
        gone.into_iter().map(|(_, known)| known.key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, uid: &str, rv: &str) -> v1::Key {
        v1::Key { namespace: "n".into(), name: name.into(), uid: uid.into(), resource_version: rv.into() }
    }

    fn changes(seen: &mut Seen, key: &v1::Key) -> Vec<Change> {
        seen.put(key).into_iter().map(|(change, _)| change).collect()
    }

    #[test]
    fn a_state_sent_again_is_its_difference() {
        let mut seen = Seen::default();
        seen.begin();
        for name in ["a", "b", "c", "d"] {
            assert_eq!(changes(&mut seen, &key(name, name, "1")), [Change::Added]);
        }
        assert!(seen.end().is_empty());
        assert!(seen.remove(&key("d", "d", "2")) && !seen.remove(&key("d", "d", "2")));
        seen.begin();
        assert_eq!(changes(&mut seen, &key("a", "a", "1")), []);
        assert_eq!(changes(&mut seen, &key("b", "b", "5")), [Change::Modified]);
        assert_eq!(changes(&mut seen, &key("c", "new", "6")), [Change::Deleted, Change::Added]);
        seen.begin();
        changes(&mut seen, &key("a", "a", "1"));
        assert_eq!(seen.end().into_iter().map(|key| key.name).collect::<Vec<_>>(), ["b", "c"]);
    }
}
