//! Rights of RBAC: their manifests; and random ones, what they allow, and the ways in which they are taken away.

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, IteratorRandom as _};
use serde_json::{Value, json};

use crate::access::world::World;

type Words = &'static [&'static str];

/// What a request wants to do. An empty namespace or name stands for all.
pub(super) struct Access {
    pub verb: &'static str,
    pub resource: &'static str,
    pub namespace: &'static str,
    pub name: &'static str,
}

/// A role, and the binding that gives it to its subjects.
#[derive(Debug)]
pub(super) struct Grant {
    name: String,
    /// Of the binding: empty for a ClusterRoleBinding.
    namespace: &'static str,
    /// Of the role: empty for a ClusterRole, which both kinds of bindings can give.
    role_namespace: &'static str,
    rules: Vec<Rule>,
    subjects: Vec<Subject>,
}

#[derive(Debug)]
struct Rule {
    verbs: Words,
    resources: Words,
    /// Empty for all.
    names: Words,
}

/// An index of [`USERS`], in one of the two forms, or a namespace of accounts.
#[derive(Debug)]
enum Subject {
    Account(usize),
    User(usize),
    Group(&'static str),
}

/// The namespaces of the users' accounts, and so of the groups that they are in.
pub(super) const USERS: [&str; 10] = ["a", "b", "a", "a", "b", "a", "a", "b", "a", "a"];
pub(super) const RESOURCES: [&str; 2] = ["configmaps", "pods"];
pub(super) const NAMES: [Words; 5] = [&[], &[], &["one"], &["two"], &["one", "two"]];
const RULE_RESOURCES: [Words; 4] = [&["configmaps"], &["pods"], &["configmaps", "pods"], &["*"]];
const VERBS: [Words; 6] =
    [&["list", "watch"], &["list", "watch"], &["*"], &["get", "list", "watch"], &["list"], &["watch"]];
const GROUP: &str = "rbac.authorization.k8s.io";

fn has(words: Words, word: &str) -> bool {
    words.contains(&"*") || words.contains(&word)
}

/// A manifest of `kind` in a namespace, or of the kind for the cluster.
fn manifest(kind: &str, namespace: &str, name: &str, rest: &str) -> String {
    let (cluster, metadata) = match namespace {
        "" => ("Cluster", json!({ "name": name })),
        _ => ("", json!({ "name": name, "namespace": namespace })),
    };
    format!("apiVersion: {GROUP}/v1\nkind: {cluster}{kind}\nmetadata: {metadata}\n{rest}\n---\n")
}

/// A Role with these rules, or a ClusterRole in no namespace.
pub(super) fn role(namespace: &str, name: &str, rules: &[Value]) -> String {
    manifest("Role", namespace, name, &format!("rules: {}", json!(rules)))
}

/// What gives a role of this kind and name, in a namespace, or for the cluster in none.
pub(super) fn binding(namespace: &str, name: &str, (kind, role): (&str, &str), subjects: &[Value]) -> String {
    let role = json!({ "apiGroup": GROUP, "kind": kind, "name": role });
    manifest("RoleBinding", namespace, name, &format!("roleRef: {role}\nsubjects: {}", json!(subjects)))
}

/// A rule of the core group. No names stand for all.
pub(super) fn rule(resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [""], "resources": resources, "verbs": verbs, "resourceNames": names })
}

pub(super) fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
}

pub(super) fn user(name: &str) -> Value {
    json!({ "kind": "User", "apiGroup": GROUP, "name": name })
}

pub(super) fn group(name: &str) -> Value {
    json!({ "kind": "Group", "apiGroup": GROUP, "name": name })
}

/// Of an object of RBAC.
pub(super) fn path(plural: &str, namespace: &str, name: &str) -> String {
    let scope = match namespace {
        "" => format!("cluster{plural}"),
        _ => format!("namespaces/{namespace}/{plural}"),
    };
    format!("/apis/{GROUP}/v1/{scope}/{name}")
}

// === impl Grant ===

impl Grant {
    pub(super) fn drawn(number: usize, rng: &mut StdRng) -> Self {
        let namespace = *["", "a", "a", "b"].choose(rng).unwrap();
        let role_namespace = if rng.random_bool(0.3) { "" } else { namespace };
        let rules = (0..rng.random_range(1..=2)).map(|_| Rule::drawn(rng)).collect();
        let count = rng.random_range(1..=3);
        let users = (0..USERS.len()).choose_multiple(rng, count).into_iter();
        let form = |user| if rng.random_bool(0.5) { Subject::Account(user) } else { Subject::User(user) };
        let mut subjects: Vec<_> = users.map(form).collect();
        if rng.random_bool(0.25) {
            let namespace = *["a", "b"].choose(rng).unwrap();
            subjects.push(Subject::Group(namespace));
        }
        Self { name: format!("union-{number}"), namespace, role_namespace, rules, subjects }
    }

    pub(super) fn allows(&self, user: usize, access: &Access) -> bool {
        let is_there = self.namespace.is_empty() || self.namespace == access.namespace;
        is_there && self.is_of(user) && self.rules.iter().any(|rule| rule.allows(access))
    }

    /// Where a user may do something with a resource: namespaces and names. An empty namespace and no names stand for all.
    pub(super) fn scopes(&self, user: usize, resource: &str) -> Vec<(&'static str, Words)> {
        let rules = self.rules.iter().filter(|rule| self.is_of(user) && has(rule.resources, resource));
        rules.map(|rule| (self.namespace, rule.names)).collect()
    }

    fn is_of(&self, user: usize) -> bool {
        self.subjects.iter().any(|subject| match subject {
            Subject::Account(of) | Subject::User(of) => *of == user,
            Subject::Group(of) => *of == USERS[user],
        })
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.rules.is_empty() || self.subjects.is_empty()
    }

    /// Takes all of it away or a part, in the cluster and here. Returns what was taken.
    pub(super) async fn take(&mut self, world: &World, rng: &mut StdRng) -> &'static str {
        let what = *["the binding", "the role", "a rule", "a subject"].choose(rng).unwrap();
        match what {
            "the binding" => {
                self.subjects.clear();
                world.delete(&path("rolebindings", self.namespace, &self.name)).await;
            }
            "the role" => {
                self.rules.clear();
                world.delete(&path("roles", self.role_namespace, &self.name)).await;
            }
            "a rule" => {
                self.rules.swap_remove(rng.random_range(0..self.rules.len()));
                world.cluster.apply(&self.role()).await;
            }
            _ => {
                self.subjects.swap_remove(rng.random_range(0..self.subjects.len()));
                world.cluster.apply(&self.binding()).await;
            }
        }
        what
    }

    pub(super) fn manifests(&self) -> String {
        self.role() + &self.binding()
    }

    fn role(&self) -> String {
        let rules: Vec<_> = self.rules.iter().map(|of| rule(of.resources, of.names, of.verbs)).collect();
        role(self.role_namespace, &self.name, &rules)
    }

    fn binding(&self) -> String {
        let subjects: Vec<_> = self.subjects.iter().map(Subject::json).collect();
        let kind = if self.role_namespace.is_empty() { "ClusterRole" } else { "Role" };
        binding(self.namespace, &self.name, (kind, &*self.name), &subjects)
    }
}

// === impl Rule ===

impl Rule {
    fn drawn(rng: &mut StdRng) -> Self {
        let [verbs, resources, names] = [&VERBS[..], &RULE_RESOURCES, &NAMES].map(|of| *of.choose(rng).unwrap());
        Self { verbs, resources, names }
    }

    fn allows(&self, access: &Access) -> bool {
        let is_named = self.names.is_empty() || self.names.contains(&access.name);
        is_named && has(self.verbs, access.verb) && has(self.resources, access.resource)
    }
}

// === impl Subject ===

impl Subject {
    fn json(&self) -> Value {
        match self {
            Self::Account(of) => account(USERS[*of], &format!("union-{of}")),
            Self::User(of) => user(&format!("system:serviceaccount:{}:union-{of}", USERS[*of])),
            Self::Group(of) => group(&format!("system:serviceaccounts:{of}")),
        }
    }
}
