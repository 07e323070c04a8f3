//! The rights of the users of the delegated listener, and one user, the reader, who may read everything or nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use informerd_sim::Server;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::SETTLES;
use super::users::USERS;
use super::world::{RESOURCES, Run};
use crate::support::client::Client;

/// The longest that a right is used after it was taken away, once all is well: the watches of bindings may be on their way
/// to another apiserver.
pub(super) const UNTOLD: Duration = Duration::from_secs(15);

const READER: &str = "reader";

/// What the reviews say.
#[derive(Default)]
pub(super) struct Rights {
    /// The reader may do nothing.
    is_taken: AtomicBool,
    /// Since when each of the others may not read its namespace.
    gone: [Mutex<Option<Instant>>; USERS.len()],
    /// Which of the others were ever served, and in which way.
    pub served: Mutex<Vec<(&'static str, &'static str)>>,
}

impl Rights {
    fn allow(&self, user: &str, namespace: &str) -> bool {
        if user == READER {
            return !self.is_taken.load(Ordering::SeqCst);
        }
        let number = USERS.iter().position(|one| (one.name, one.namespace) == (user, namespace));
        number.is_some_and(|number| self.gone_since(number).is_none())
    }

    pub(super) fn gone_since(&self, user: usize) -> Option<Instant> {
        *self.gone[user].lock()
    }
}

/// The resources of RBAC, which this apiserver has by definitions, and the bindings.
pub(super) fn define(server: &Server) {
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
    server.create(binding(0)).unwrap();
    for user in 0..USERS.len() {
        server.create(binding_of(user, 0)).unwrap();
    }
}

/// What gives the reader its right, which is one to all namespaces.
fn binding(n: u64) -> Value {
    let metadata = json!({"name": READER, "annotations": {"n": n.to_string()}});
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata})
}

/// The same of one of the others, in its namespace.
fn binding_of(user: usize, n: u64) -> Value {
    let (mut binding, user) = (binding(n), USERS[user]);
    binding["kind"] = "RoleBinding".into();
    binding["metadata"]["name"] = user.name.into();
    binding["metadata"]["namespace"] = user.namespace.into();
    binding
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

/// Of the reader.
pub(super) fn set(run: &Run, allowed: bool) {
    if run.rights.is_taken.swap(!allowed, Ordering::SeqCst) == allowed {
        run.server.update(binding(run.tick())).expect("the store is not set back behind the binding");
    }
}

/// Of one of the others.
pub(super) fn set_of(run: &Run, user: usize, allowed: bool) {
    *run.rights.gone[user].lock() = (!allowed).then(Instant::now);
    run.server.update(binding_of(user, run.tick())).expect("the store is not set back behind the binding");
}

/// A binding that is as long as a line can be.
pub(super) fn long_line(server: &Server) {
    let mut long = binding(1);
    long["metadata"]["name"] = "long".into();
    long["metadata"]["annotations"]["long"] = "x".repeat(6 << 20).into();
    // If it is there already, once is enough.
    let _ = server.create(long);
}

/// Reads again and again. What it is refused it has no right to, or the apiserver does not say.
pub(super) async fn reads(run: Arc<Run>) {
    let mut client = None;
    while run.goes_on() {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Each daemon has a CA of its own.
        let Some(to) = client.take().or_else(|| client_of(&run, READER)) else { continue };
        if let Ok(answer) = to.try_get(&format!("{}?resourceVersion=0", RESOURCES[0].path())).await {
            if ![200, 403, 410, 429, 500, 502, 503, 504].contains(&answer.status.as_u16()) {
                run.complain(format!("the reader gets {}: {}", answer.status, answer.text()));
            }
            client = Some(to);
        }
    }
}

/// Of the present daemon, if there is one.
pub(super) fn client_of(run: &Run, user: &str) -> Option<Client> {
    let ca = run.daemon()?.daemon.ca_file.clone()?;
    Some(Client::tls(&run.delegated_url(), &ca, user))
}

/// The right is taken away while faults are left, but none of connections: it takes a while until one that is dead is found
/// out.
pub(super) async fn taken(run: &Run) {
    tokio::time::sleep(SETTLES).await;
    if let Ok(Some(why)) = end(run).await {
        run.complain(why);
    }
    set(run, true);
}

/// The reader reads. When its right is taken away, its stream ends, and nothing is answered. What is wrong with that, or
/// an error if it could not be tried.
pub(super) async fn end(run: &Run) -> Result<Option<String>, String> {
    let (client, path) = (client_of(run, READER).ok_or("no daemon")?, RESOURCES[0].path());
    let read = async || client.try_get(&format!("{path}?resourceVersion=0")).await;
    let mut watch = client.try_watch(&format!("{path}?watch=1&resourceVersion=0")).await?.until_the_end();
    let may = (watch.status.as_u16(), read().await?.status.as_u16());
    if may != (200, 200) {
        return Err(format!("the reader gets {may:?}"));
    }
    set(run, false);
    let ended = tokio::time::timeout(UNTOLD, async { while let Ok(Some(_)) = watch.next().await {} }).await;
    // It may have ended for another reason, which tells nobody.
    tokio::time::sleep(UNTOLD).await;
    let answer = read().await?;
    let (status, plan) = (answer.status.as_u16(), answer.headers.get("x-informerd-plan"));
    let is_forwarded = plan.is_some_and(|plan| plan.as_bytes().starts_with(b"forwarded"));
    match ended {
        Ok(()) if status == 403 => Ok(None),
        // Of what is forwarded the apiserver decides, and this one allows it.
        Ok(()) if status == 200 && !is_forwarded => Ok(Some(format!("without the right, the reader gets {status}"))),
        Ok(()) => Err(format!("without the right, the reader gets {status} {plan:?}")),
        Err(_) => Ok(Some(format!(
            "the stream goes on {UNTOLD:?} after the right to it was taken away, and a read gets {status} {plan:?}"
        ))),
    }
}
