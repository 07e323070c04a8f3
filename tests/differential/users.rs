//! Users with little rights, over a listener that asks who they are: what they are shown and what they are refused, and
//! with which words, is what the apiserver shows and refuses them.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::generated::{self, Range};
use super::own::Own;
use super::report::Report;
use super::wire::Ask;
use super::world::{A, BOUND, World};

/// Of each user.
pub(crate) const REQUESTS: u64 = 200;
/// The token of nobody.
const UNKNOWN: &str = "nonsense";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

struct User {
    name: &'static str,
    /// Its rights hold here, or everywhere.
    space: Option<&'static str>,
    rules: Value,
    /// What it may read, if there is anything.
    may: Option<&'static str>,
    /// So many of its answers have to be successful, and so many refused.
    least: [u64; 2],
}

fn users() -> Vec<User> {
    let all = |verbs: &[&str]| json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}]);
    let user = |name, space, rules, may| User { name, space, rules, may, least: [3, 15] };
    vec![
        user("one-namespace", Some(A), all(&["get", "list", "watch"]), Some("/api/v1/namespaces/diff-a/pods")),
        user(
            "named-objects",
            Some(A),
            json!([{"apiGroups": ["*"], "resources": ["*"], "resourceNames": ["one"], "verbs": ["get", "list", "watch"]}]),
            Some("/api/v1/namespaces/diff-a/pods/one"),
        ),
        user("lists-and-does-not-watch", None, all(&["list"]), Some("/api/v1/pods")),
        user("watches-and-does-not-list", None, all(&["watch"]), Some("/api/v1/pods?watch=1&timeoutSeconds=1")),
        user(
            "some-resources",
            None,
            json!([
                {"apiGroups": [""], "resources": ["pods", "configmaps", "events"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["differential.example.com"], "resources": ["widgets"], "verbs": ["list", "watch"]},
            ]),
            Some("/api/v1/events"),
        ),
        // What everybody may read is discovery, which a seed need not ask for.
        User { least: [0, 60], ..user("nothing", None, json!([]), None) },
    ]
}

/// The users of one seed: before the daemon, or before what is tried in its place.
pub(crate) async fn run(
    own: &Own,
    world: &World,
    instead: Option<&str>,
    seed: u64,
    requests: u64,
    report: &Arc<Report>,
) {
    let mut asked = Vec::new();
    for user in users() {
        match user.set_up(own, world).await {
            Ok(token) => asked.push((user.name, Some(token), user.least)),
            Err(error) => return report.wrong(&format!("users: {}", user.name), &format!("  {error}\n")),
        }
    }
    // What is tried in the daemon's place may never show the newest state.
    let recent = match instead {
        None => world.with_recent_history().await,
        Some(_) => Ok(world.seen_by(world.pair.clone(), false)),
    };
    let world = match &recent {
        Ok(recent) => recent,
        Err(error) => return report.wrong("users: setting up", &format!("  {error}\n")),
    };
    asked.push(("everybody", None, [0, 60]));
    asked.push(("nobody-knows", Some(UNKNOWN.to_owned()), [0, 60]));
    asked.push(("administrator", Some("admin-token".to_owned()), [60, 0]));
    let each = asked.into_iter().enumerate().map(|(n, (name, token, least))| async move {
        let of_user = Arc::new(report.another(format!(" of --phase users --seed {seed}, as {name}")));
        // The apiserver closes a connection over HTTP/2 on which nobody says who they are, with all that is under way on it.
        let http2 = instead.is_none() && !matches!(token.as_deref(), None | Some(UNKNOWN));
        let seen = Arc::new(world.seen_by(own.pair_of(token.as_deref(), instead), http2));
        let range = Range { seed: seed * 100 + n as u64, requests, only: None, filter: None };
        generated::run(&seen, &range, None, &of_user).await;
        (name, least, of_user)
    });
    for (name, least, of_user) in join_all(each).await {
        let tally = of_user.take_tally();
        let count = |statuses: &[u16]| tally.statuses.iter().filter(|of| statuses.contains(of.0)).map(|of| of.1).sum();
        let told: [u64; 2] = [count(&[200]), count(&[401, 403])];
        let enough = requests < REQUESTS || told.iter().zip(least).all(|(told, least)| *told >= least);
        if !enough {
            report.wrong(&format!("users: {name}"), &format!("  {told:?} allowed and refused, and not {least:?}\n"));
        }
        report.merge(&of_user, tally);
    }
}

// === impl User ===

impl User {
    /// Makes it and what it may do; returns its token once the apiserver knows.
    async fn set_up(&self, own: &Own, world: &World) -> Result<String, String> {
        let Self { name, space, rules, .. } = self;
        let metadata = json!({"name": name});
        world.create(&format!("/api/v1/namespaces/{A}/serviceaccounts"), &json!({"metadata": metadata})).await?;
        let (root, prefix) = match space {
            Some(space) => (format!("{RBAC}/namespaces/{space}/"), ""),
            None => (format!("{RBAC}/"), "cluster"),
        };
        world.create(&format!("{root}{prefix}roles"), &json!({"metadata": metadata, "rules": rules})).await?;
        let kind = if space.is_some() { "Role" } else { "ClusterRole" };
        let binding = json!({
            "metadata": metadata, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": A, "name": name}],
        });
        world.create(&format!("{root}{prefix}rolebindings"), &binding).await?;
        let token = own.cluster.token(A, name).await;
        let [direct, _] = own.pair_of(Some(&token), None);
        for _ in 0..600 {
            let Some(may) = self.may else { break };
            let answer = direct.ask(&Ask::get(may), BOUND).await.map_err(|error| error.to_string())?;
            if answer.status == 200 {
                return Ok(token);
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        if self.may.is_none() { Ok(token) } else { Err("it may not do what it was allowed".to_owned()) }
    }
}
