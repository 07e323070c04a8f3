//! What is known of the definitions of resources, and which of their changes matter.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::changed::Subject;
use crate::lenient::{nullable, readable};
use crate::metadata::{Collection, Metadata, Parts, Whole};
use informerd_meta::ResourceVersion;

/// The two kinds of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// CustomResourceDefinitions. Their schemas are large, so they are listed without. A change of the spec changes the
    /// generation; only the watch shows other changes.
    Definition,
    /// APIServices. A change of the spec does not change the generation.
    Service,
}

/// Which definitions are followed. A process whose clients read nothing of them costs the apiserver no watch of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Followed {
    #[default]
    Nothing,
    /// APIServices: an informer runs, and must end when another server gets its group version, or an answer may be shared.
    Services,
    /// CustomResourceDefinitions as well: somebody asked for a resource that is not built in.
    All,
}

/// What is known of all definitions of one kind.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    pub(super) was_listed: bool,
    /// By name.
    known: HashMap<String, Known>,
}

#[derive(Clone, Debug)]
pub(super) struct Known {
    uid: String,
    generation: i64,
    revision: Option<ResourceVersion>,
    /// `None` if only the metadata was read.
    state: Option<State>,
}

/// What matters of a spec and a status. Annotations, labels and the fields' managers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    digest: u64,
    /// Only what becomes available has to be read again.
    is_available: bool,
}

/// What matters of the status of a CustomResourceDefinition.
#[derive(Debug, Default, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DefinitionStatus {
    #[serde(deserialize_with = "readable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "readable")]
    stored_versions: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    accepted_names: Names,
}

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Names {
    #[serde(deserialize_with = "nullable")]
    plural: String,
    #[serde(deserialize_with = "nullable")]
    kind: String,
    #[serde(deserialize_with = "nullable")]
    list_kind: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceStatus {
    #[serde(deserialize_with = "readable")]
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Hash, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    kind: String,
    #[serde(deserialize_with = "nullable")]
    status: String,
}

// === impl Kind ===

impl Kind {
    pub(super) fn collection(self, refused: std::time::Duration) -> Collection {
        let (path, resource, whole) = match self {
            Self::Definition => (
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                "customresourcedefinitions.apiextensions.k8s.io",
                Whole::Watch,
            ),
            Self::Service => (
                "/apis/apiregistration.k8s.io/v1/apiservices",
                "apiservices.apiregistration.k8s.io",
                Whole::ListAndWatch,
            ),
        };
        Collection { path: path.into(), resource, field_selector: String::new(), listed: true, whole, refused }
    }

    pub(super) fn followed(self) -> Followed {
        match self {
            Self::Definition => Followed::All,
            Self::Service => Followed::Services,
        }
    }

    /// The name of a definition must be `RESOURCE.GROUP`, that of an APIService `VERSION.GROUP`.
    pub(super) fn subject(self, name: &str) -> Subject {
        let (first, group) = name.split_once('.').unwrap_or((name, ""));
        let (first, group): (Arc<str>, Arc<str>) = (first.into(), group.into());
        match self {
            Self::Definition => Subject::Resource { group, resource: first },
            Self::Service => Subject::Version { group, version: first },
        }
    }

    fn state(self, parts: &Parts) -> State {
        match self {
            Self::Definition => State::of_definition(parts.status.as_deref()),
            Self::Service => State::of_service(parts),
        }
    }
}

// === impl Definitions ===

impl Definitions {
    /// All of them were listed. Returns the names of those that have changed, come or gone; at first, of those that have
    /// changed since they were read on their own.
    pub(super) fn listed(&mut self, kind: Kind, objects: &[Metadata]) -> Vec<String> {
        let is_first = !std::mem::replace(&mut self.was_listed, true);
        let mut last = std::mem::take(&mut self.known);
        let mut changed = Vec::new();
        for object in objects.iter().filter(|object| !object.name.is_empty()) {
            let mut now = Known::of(kind, object);
            match last.remove(&object.name) {
                Some(last) => {
                    if now.differs(&last) {
                        changed.push(object.name.clone());
                    }
                    if now.revision == last.revision {
                        now.state = now.state.or(last.state);
                    }
                }
                None if is_first => {}
                None => changed.push(object.name.clone()),
            }
            self.known.insert(object.name.clone(), now);
        }
        changed.extend(last.into_keys());
        changed
    }

    /// Whether there is a CustomResourceDefinition of this resource.
    pub(super) fn names(&self, group: &str, resource: &str) -> bool {
        self.known.contains_key(&format!("{resource}.{group}"))
    }

    /// Whether there is a CustomResourceDefinition of the group.
    pub(super) fn name_group(&self, group: &str) -> bool {
        self.known.keys().any(|name| name.split_once('.').is_some_and(|(_, of)| of == group))
    }

    /// There is none of this name, although that was not reported.
    pub(super) fn is_gone(&mut self, name: &str) {
        self.known.remove(name);
    }

    /// One was created, changed or deleted. Returns whether that matters.
    pub(super) fn take(&mut self, kind: Kind, deleted: bool, object: &Metadata) -> bool {
        if deleted {
            self.known.remove(&object.name);
            return true;
        }
        let now = Known::of(kind, object);
        let last = self.known.insert(object.name.clone(), now.clone());
        last.is_none_or(|last| now.differs(&last))
    }

    /// Returns whether what was known has changed. The first answer changes nothing.
    pub(super) fn learn(&mut self, name: &str, now: Known) -> bool {
        match self.known.get(name) {
            Some(last) if now.revision < last.revision => false,
            last => {
                // What is known of a list lacks the state. The revision tells whether it is the same.
                let differs = last.is_some_and(|last| now.differs(last));
                self.known.insert(name.to_owned(), now);
                differs
            }
        }
    }
}

#[cfg(test)]
impl Definitions {
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.was_listed && self.known.contains_key(name)
    }

    pub(super) fn is_at(&self, name: &str, revision: u64) -> bool {
        self.known.get(name).is_some_and(|known| known.revision == Some(ResourceVersion(revision)))
    }

    pub(super) fn forget(&mut self, name: &str, known: Known) {
        self.known.insert(name.to_owned(), known);
    }
}

// === impl Known ===

impl Known {
    fn of(kind: Kind, object: &Metadata) -> Self {
        let state = object.parts.as_ref().map(|parts| kind.state(parts));
        Self::new(&object.uid, object.generation, &object.resource_version, state)
    }

    pub(super) fn new(uid: &str, generation: i64, revision: &str, state: Option<State>) -> Self {
        Self { uid: uid.to_owned(), generation, revision: ResourceVersion::parse(revision), state }
    }

    fn differs(&self, last: &Self) -> bool {
        let is_same = self.uid == last.uid && self.generation == last.generation;
        !is_same
            || match (last.state, self.state) {
                (Some(last), Some(now)) => last.digest != now.digest || !last.is_available && now.is_available,
                _ => self.revision != last.revision,
            }
    }
}

// === impl State ===

impl State {
    /// The generation stands for the spec.
    pub(super) fn of_definition(status: Option<&RawValue>) -> Self {
        let read: DefinitionStatus = read(status);
        Self { digest: digest(&read), is_available: true }
    }

    fn of_service(parts: &Parts) -> Self {
        let status: ServiceStatus = read(parts.status.as_deref());
        let is_available = |condition: &Condition| condition.kind == "Available" && condition.status == "True";
        Self {
            digest: digest(&parts.spec.as_deref().map(RawValue::get)),
            is_available: status.conditions.iter().any(is_available),
        }
    }
}

/// The kind that the apiserver serves a definition's resource with. Empty until it is accepted.
pub(super) fn accepted_kind(status: Option<&RawValue>) -> String {
    read::<DefinitionStatus>(status).accepted_names.kind
}

fn read<'a, T: Default + Deserialize<'a>>(status: Option<&'a RawValue>) -> T {
    status.and_then(|status| serde_json::from_str(status.get()).ok()).unwrap_or_default()
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
