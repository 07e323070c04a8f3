//! The users of the delegated listener, and their rights.

use std::sync::Arc;

use informerd_sim::Server;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::world::{NAMESPACES, Run};

#[derive(Clone, Copy)]
pub(super) struct User {
    pub name: &'static str,
    /// What it may read: `None` for everything.
    pub namespace: Option<&'static str>,
}

pub(super) const USERS: [User; 3] = [
    User { name: "reader", namespace: None },
    User { name: "ann", namespace: Some(NAMESPACES[0]) },
    User { name: "bob", namespace: Some(NAMESPACES[1]) },
];
/// The number of the one who may read everything.
pub(super) const READER: usize = 0;

/// What the reviews say.
#[derive(Default)]
pub(super) struct Rights {
    /// Since when each user may not read.
    gone: [Mutex<Option<Instant>>; USERS.len()],
    /// Which users were ever served, and in which way.
    pub served: Mutex<Vec<(&'static str, &'static str)>>,
}

impl Rights {
    fn allow(&self, user: &str, namespace: &str) -> bool {
        let may = |one: &User| one.name == user && one.namespace.is_none_or(|of| of == namespace);
        USERS.iter().position(may).is_some_and(|number| self.gone_since(number).is_none())
    }

    pub(super) fn gone_since(&self, user: usize) -> Option<Instant> {
        *self.gone[user].lock()
    }
}

/// The resources of RBAC, which this apiserver has by definitions, and the bindings.
pub(crate) fn define(server: &Server) {
    for (kind, scope) in [
        ("Role", "Namespaced"),
        ("RoleBinding", "Namespaced"),
        ("ClusterRole", "Cluster"),
        ("ClusterRoleBinding", "Cluster"),
    ] {
        let plural = format!("{}s", kind.to_lowercase());
        let names =
            json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
        let definition = json!({
            "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
            "metadata": {"name": format!("{plural}.rbac.authorization.k8s.io")},
            "spec": {"group": "rbac.authorization.k8s.io", "scope": scope, "names": names,
                "versions": [{"name": "v1", "served": true, "storage": true}]},
        });
        server.create(definition).unwrap();
    }
    for user in 0..USERS.len() {
        server.create(binding(user, 0)).unwrap();
    }
}

/// What gives a user its right.
pub(crate) fn binding(user: usize, n: u64) -> Value {
    let User { name, namespace } = USERS[user];
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let metadata = json!({"name": name, "namespace": namespace, "annotations": {"n": n.to_string()}});
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata})
}

/// A token is the name of its user.
pub(super) fn answer(server: &Server, rights: Arc<Rights>) {
    server.set_reviews(move |path, question| {
        let spec = &question["spec"];
        match path.rsplit('/').next()? {
            "tokenreviews" => {
                Some(json!({"authenticated": true, "user": {"username": spec["token"], "uid": spec["token"]}}))
            }
            "subjectaccessreviews" => {
                let namespace = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
                let allowed = rights.allow(spec["user"].as_str()?, namespace);
                let reason = if allowed { "RBAC: allowed by a binding" } else { "" };
                Some(json!({"allowed": allowed, "reason": reason}))
            }
            _ => None,
        }
    });
}

/// Gives a user its right, or takes it away.
pub(super) fn set(run: &Run, user: usize, allowed: bool) {
    let mut gone = run.rights.gone[user].lock();
    if gone.is_none() != allowed {
        *gone = (!allowed).then(Instant::now);
        run.server.update(binding(user, run.tick())).expect("the store is not set back behind the binding");
    }
}

/// A binding that is as long as a line can be.
pub(super) fn long_line(server: &Server) {
    let mut long = binding(READER, 1);
    long["metadata"]["name"] = "long".into();
    long["metadata"]["annotations"]["long"] = "x".repeat(6 << 20).into();
    // If it is there already, once is enough.
    let _ = server.create(long);
}
