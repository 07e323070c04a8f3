//! The resources of the cluster as discovery named them last, by group and version.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::parse::{ApiResource, VersionRead};
use informerd_meta::Gvr;

/// All groups. Copies share the groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    groups: HashMap<Arc<str>, Arc<Group>>,
}

/// The resources of one group.
#[derive(Debug)]
pub(super) struct Group {
    /// When they were asked for.
    pub(super) asked: Instant,
    /// In the order of preference.
    versions: Vec<Version>,
}

#[derive(Debug)]
struct Version {
    name: Arc<str>,
    resources: HashMap<Arc<str>, ApiResource>,
    /// Whether these are all that there are, as its server said when it was asked last.
    is_current: bool,
}

// === impl Index ===

impl Index {
    /// All groups, as they were asked for at `asked`. What could not be read, what was asked for later, and groups that
    /// are `hidden` from a read of everything stay as in `last`.
    pub(super) fn read(
        all: Vec<VersionRead>,
        asked: Instant,
        last: Option<&Self>,
        hidden: impl Fn(&str) -> bool,
    ) -> Self {
        let mut reads: HashMap<Arc<str>, Vec<VersionRead>> = HashMap::new();
        for read in all {
            reads.entry(Arc::clone(&read.group)).or_default().push(read);
        }
        let mut groups: HashMap<_, _> = reads
            .into_iter()
            .map(|(name, reads)| {
                (Arc::clone(&name), Arc::new(Group::read(reads, asked, last.and_then(|i| i.group(&name)))))
            })
            .collect();
        for (name, group) in last.into_iter().flat_map(|last| &last.groups) {
            if group.asked > asked || !groups.contains_key(name) && hidden(name) {
                groups.insert(Arc::clone(name), Arc::clone(group));
            }
        }
        Self { groups }
    }

    /// The same with one group that was asked for at `asked`. It is gone if it has no versions.
    pub(super) fn with(&self, name: &Arc<str>, versions: Vec<VersionRead>, asked: Instant) -> Self {
        let mut groups = self.groups.clone();
        if self.group(name).is_some_and(|group| group.asked > asked) {
            // Somebody else has asked later.
        } else if versions.is_empty() {
            groups.remove(name);
        } else {
            groups.insert(Arc::clone(name), Arc::new(Group::read(versions, asked, self.group(name))));
        }
        Self { groups }
    }

    pub(super) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name).map(|group| &**group)
    }

    pub(super) fn resource(&self, gvr: &Gvr) -> Option<&ApiResource> {
        self.group(&gvr.group)?.version(&gvr.version)?.resources.get(&gvr.resource)
    }

    /// The resource in the version of its group that is preferred.
    pub(super) fn preferred(&self, group: &str, resource: &str) -> Option<&Gvr> {
        let mut versions = self.group(group)?.versions.iter();
        versions.find_map(|version| version.resources.get(resource)).map(|found| &found.gvr)
    }

    /// Whether the server of a group version has said what there is. `None` if there is no such group version.
    pub(super) fn is_current(&self, group: &str, version: &str) -> Option<bool> {
        self.group(group)?.version(version).map(|version| version.is_current)
    }

    /// In the order of preference.
    pub(super) fn versions(&self, group: &str) -> impl Iterator<Item = &Arc<str>> {
        self.group(group).into_iter().flat_map(|group| &group.versions).map(|version| &version.name)
    }

    /// In no order.
    pub(super) fn resources(&self) -> impl Iterator<Item = &ApiResource> {
        let versions = self.groups.values().flat_map(|group| &group.versions);
        versions.flat_map(|version| version.resources.values())
    }
}

// === impl Group ===

impl Group {
    fn read(versions: Vec<VersionRead>, asked: Instant, last: Option<&Self>) -> Self {
        let mut all: Vec<Version> = Vec::new();
        for VersionRead { version, resources, is_current, .. } in versions {
            let known = || last.and_then(|last| last.version(&version)).map(|known| known.resources.clone());
            let resources = match resources {
                Some(read) => read.into_iter().map(|found| (Arc::clone(&found.gvr.resource), found)).collect(),
                None => known().unwrap_or_default(),
            };
            // A document may name a version twice.
            match all.iter_mut().find(|named| named.name == version) {
                Some(named) => {
                    named.resources.extend(resources);
                    named.is_current &= is_current;
                }
                None => all.push(Version { name: version, resources, is_current }),
            }
        }
        Self { asked, versions: all }
    }

    fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| *version.name == *name)
    }
}
