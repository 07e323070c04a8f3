//! What has changed since it was read. Only readers of what has changed wait until it is read again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::built_in::is_built_in;
use informerd_meta::Gvr;

/// What a change concerns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// One resource, in all versions.
    Resource { group: Arc<str>, resource: Arc<str> },
    /// All resources of one group version.
    Version { group: Arc<str>, version: Arc<str> },
    /// Everything that may change while the apiserver runs.
    All,
}

/// The changes since the last read of each group, and of everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed {
    all: bool,
    groups: HashMap<Arc<str>, HashSet<Subject>>,
}

/// With more changed groups, everything counts as changed. Few groups that nobody reads change so often.
const MOST_GROUPS: usize = 10_000;

/// With more changes of a group, all of it counts as changed.
const MOST_SUBJECTS: usize = 1000;

// === impl Subject ===

impl Subject {
    pub(super) fn concerns(&self, gvr: &Gvr) -> bool {
        match self {
            Self::Resource { group, resource } => *group == gvr.group && *resource == gvr.resource,
            Self::Version { group, version } => *group == gvr.group && *version == gvr.version,
            Self::All => !is_built_in(&gvr.group),
        }
    }

    fn group(&self) -> Option<&Arc<str>> {
        match self {
            Self::Resource { group, .. } | Self::Version { group, .. } => Some(group),
            Self::All => None,
        }
    }
}

// === impl Changed ===

impl Changed {
    pub(super) fn add(&mut self, subject: Subject) {
        match subject.group().cloned() {
            // The core group has no document of its own.
            Some(group) if !group.is_empty() && self.groups.len() < MOST_GROUPS => {
                extend(self.groups.entry(group).or_default(), [subject]);
            }
            _ => (self.all, self.groups) = (true, HashMap::new()),
        }
    }

    pub(super) fn is_all(&self) -> bool {
        self.all
    }

    /// Whether the versions of a resource, or one of them, may have changed.
    pub(super) fn includes(&self, group: &str, resource: &str) -> bool {
        let concerned = |subject: &Subject| match subject {
            Subject::Resource { resource: changed, .. } => **changed == *resource,
            Subject::Version { .. } | Subject::All => true,
        };
        self.all || self.groups.get(group).is_some_and(|subjects| subjects.iter().any(concerned))
    }

    pub(super) fn includes_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// They are about to be read.
    pub(super) fn take_all(&mut self) -> Self {
        std::mem::take(self)
    }

    /// One group is about to be read.
    pub(super) fn take(&mut self, group: &Arc<str>) -> Self {
        let groups = self.groups.remove_entry(group).into_iter().collect();
        Self { all: false, groups }
    }

    /// Everything was read, except for these groups.
    pub(super) fn keep(&mut self, is_unread: impl Fn(&str) -> bool) {
        self.all = false;
        self.groups.retain(|group, _| is_unread(group));
    }

    /// Whether there may be resources by now that a group version, or any version of a group, was not read to have.
    pub(super) fn may_add(&self, group: &str, version: Option<&str>) -> bool {
        let concerned = |subject: &Subject| match subject {
            Subject::Version { version: changed, .. } => version.is_none_or(|version| **changed == *version),
            Subject::Resource { .. } | Subject::All => true,
        };
        let all = self.all && !is_built_in(group);
        all || self.groups.get(group).is_some_and(|subjects| subjects.iter().any(concerned))
    }

    /// They were not read.
    pub(super) fn put_back(&mut self, unread: Self) {
        self.all |= unread.all;
        for (group, subjects) in unread.groups {
            extend(self.groups.entry(group).or_default(), subjects);
        }
    }
}

/// Adds changes of one group.
fn extend(subjects: &mut HashSet<Subject>, more: impl IntoIterator<Item = Subject>) {
    subjects.extend(more);
    if subjects.len() > MOST_SUBJECTS {
        *subjects = HashSet::from([Subject::All]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_changes_of_a_group_are_bounded() {
        let mut changed = Changed::default();
        let subject = |number| Subject::Resource { group: "example.com".into(), resource: format!("r{number}").into() };
        (0..MOST_SUBJECTS).for_each(|number| changed.add(subject(number)));
        assert!(changed.includes("example.com", "r0") && !changed.includes("example.com", "other"));
        let unread = changed.take(&"example.com".into());
        changed.add(subject(MOST_SUBJECTS));
        changed.put_back(unread);
        assert_eq!(changed.groups["example.com"].len(), 1);
        assert!(changed.includes("example.com", "other") && !changed.includes("apps", "other") && !changed.is_all());
        for group in 1..=MOST_GROUPS {
            assert!(!changed.is_all(), "{group}");
            changed.add(Subject::Resource { group: format!("g{group}").into(), resource: "r".into() });
        }
        assert!(changed.is_all() && changed.groups.is_empty());
    }
}
