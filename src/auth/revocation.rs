//! What takes rights away: changes of roles and bindings, and the deletion of what tokens are bound to. Told by watches,
//! so that it shows at once and not when something remembered has grown old.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::client_ca::ClientCa;
use super::config::AuthConfig;
use super::metrics::{AuthMetrics, count};
use super::stamps::Stamps;
use super::user::{POD_UID, UserInfo};
use super::watching::{Collection, Seen, watch};
use crate::lifecycle::{Fatal, spawn_supervised};
use crate::upstream::RequestVerb;
use crate::upstream::client::{CallOptions, Identity, Upstream, empty};

/// The apiserver's authorizer reads roles from a cache of its own, and behind one address may be several apiservers: a
/// decision right after a change may still be made by the rights before it. So what is decided after a change is
/// forgotten again after these.
const SETTLES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// An apiserver may take the token of what is deleted for good for this long (its own caches live for 10 s).
const REVOKED_FOR: Duration = Duration::from_secs(300);
const MAX_REVOKED: usize = 65_536;
const MAX_SETTLING: usize = 4096;

const RIGHTS: [(&str, &str); 4] = [
    ("/apis/rbac.authorization.k8s.io/v1/roles", "roles.rbac.authorization.k8s.io"),
    ("/apis/rbac.authorization.k8s.io/v1/rolebindings", "rolebindings.rbac.authorization.k8s.io"),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "clusterroles.rbac.authorization.k8s.io"),
    ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "clusterrolebindings.rbac.authorization.k8s.io"),
];

/// Service accounts and pods that were seen to be deleted, by uid.
#[derive(Debug, Default)]
pub(super) struct Revoked {
    uids: Mutex<HashMap<Box<str>, Instant>>,
}

/// Forgets decisions when rights change, and again when the change has reached everybody.
#[derive(Debug)]
pub(super) struct Settling {
    stamps: Arc<Stamps>,
    metrics: Arc<AuthMetrics>,
    /// By namespace.
    pending: Mutex<HashMap<Box<str>, VecDeque<Instant>>>,
    more: Notify,
}

/// Starts everything that watches.
pub(super) fn start(
    config: &AuthConfig,
    upstream: &Upstream,
    stamps: &Arc<Stamps>,
    revoked: &Arc<Revoked>,
    metrics: &Arc<AuthMetrics>,
    fatal: &Fatal,
) {
    let settling = Arc::new(Settling::new(Arc::clone(stamps), Arc::clone(metrics)));
    spawn_supervised("settling-rights", Arc::clone(&settling).run(), fatal);
    let live = Arc::new(AtomicU64::new(0));
    for (path, resource) in RIGHTS {
        let (settling, stamps, live, metrics) = (settling.clone(), stamps.clone(), live.clone(), metrics.clone());
        let mut open = false;
        let told = move |seen: Seen<'_>| {
            match seen {
                Seen::Change { object, .. } => settling.change(&object.namespace),
                Seen::Restarted => settling.change(""),
                Seen::Live | Seen::Lost => {}
            }
            let now = !matches!(seen, Seen::Lost);
            if now != std::mem::replace(&mut open, now) {
                let change = if now { 1 } else { u64::MAX };
                let count = live.fetch_add(change, Ordering::AcqRel).wrapping_add(change);
                metrics.watches_live.store(count, Ordering::Relaxed);
                stamps.set_watched(count == RIGHTS.len() as u64);
            }
        };
        let collection = Collection { path, resource, field_selector: String::new() };
        spawn_supervised("watching-rights", watch(upstream.clone(), collection, told), fatal);
    }
    let accounts =
        Collection { path: "/api/v1/serviceaccounts", resource: "serviceaccounts", field_selector: String::new() };
    let mut bound = vec![accounts];
    // Only of our own node: the pods of all nodes, watched by every node, are what this program is there to spare.
    if let Some(node) = &config.node {
        let field_selector = format!("spec.nodeName%3D{}", utf8_percent_encode(node, NON_ALPHANUMERIC));
        bound.push(Collection { path: "/api/v1/pods", resource: "pods", field_selector });
    }
    for collection in bound {
        let (revoked, stamps) = (revoked.clone(), stamps.clone());
        let told = move |seen: Seen<'_>| {
            if let Seen::Change { deleted: true, object } = seen {
                revoked.insert(&object.uid);
                stamps.nudge();
            }
        };
        spawn_supervised("watching-accounts", watch(upstream.clone(), collection, told), fatal);
    }
}

/// Follows the CA that the cluster publishes for aggregated API servers.
pub(super) fn follow_cluster_ca(upstream: &Upstream, client_ca: &Arc<ClientCa>, fatal: &Fatal) {
    let changed = Arc::new(Notify::new());
    let (told, wake) = (Arc::clone(&changed), Arc::clone(&changed));
    let collection = Collection {
        path: "/api/v1/namespaces/kube-system/configmaps",
        resource: "configmaps",
        field_selector: "metadata.name%3Dextension-apiserver-authentication".into(),
    };
    let watching = watch(upstream.clone(), collection, move |_| told.notify_one());
    spawn_supervised("watching-client-ca", watching, fatal);
    let (upstream, client_ca) = (upstream.clone(), Arc::clone(client_ca));
    let reading = async move {
        loop {
            match read_cluster_ca(&upstream).await.and_then(|pem| client_ca.replace(pem.as_bytes())) {
                Ok(true) => tracing::info!("CA of client certificates taken from the cluster"),
                Ok(false) => {}
                Err(error) => tracing::warn!(error, "the CA of client certificates cannot be read from the cluster"),
            }
            wake.notified().await;
        }
    };
    spawn_supervised("reading-client-ca", reading, fatal);
}

async fn read_cluster_ca(upstream: &Upstream) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    struct ConfigMap {
        #[serde(default)]
        data: HashMap<String, String>,
    }
    let mut request = http::Request::new(empty());
    *request.uri_mut() =
        http::Uri::from_static("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
    let options = CallOptions::new(RequestVerb::Get, "configmaps").header_timeout(Duration::from_secs(30));
    let response = upstream.send_with(Identity::Own, request, &options).await.map_err(|error| error.to_string())?;
    if response.status() != http::StatusCode::OK {
        return Err(format!("the apiserver answers {}", response.status()));
    }
    let body = http_body_util::Limited::new(response.into_body(), 4 << 20);
    let body = http_body_util::BodyExt::collect(body).await.map_err(|error| error.to_string())?;
    let found: ConfigMap = serde_json::from_slice(&body.to_bytes()).map_err(|error| error.to_string())?;
    found.data.get("client-ca-file").cloned().ok_or_else(|| "the ConfigMap has no client-ca-file".to_owned())
}

// === impl Revoked ===

impl Revoked {
    /// Whether the user's account, or the pod that its token is bound to, is gone.
    pub(super) fn covers(&self, user: &UserInfo) -> bool {
        let uids = self.uids.lock();
        !uids.is_empty()
            && [Some(user.uid.as_str()), user.extra(POD_UID)].into_iter().flatten().any(|uid| uids.contains_key(uid))
    }

    fn insert(&self, uid: &str) {
        let mut uids = self.uids.lock();
        if uids.len() >= MAX_REVOKED {
            let now = Instant::now();
            uids.retain(|_, until| *until > now);
        }
        // Beyond the bound reviews still tell, only later.
        if !uid.is_empty() && uids.len() < MAX_REVOKED {
            uids.insert(uid.into(), Instant::now() + REVOKED_FOR);
        }
    }
}

// === impl Settling ===

impl Settling {
    fn new(stamps: Arc<Stamps>, metrics: Arc<AuthMetrics>) -> Self {
        Self { stamps, metrics, pending: Mutex::default(), more: Notify::new() }
    }

    /// Rights in a namespace have changed; with an empty one, rights anywhere.
    fn change(&self, namespace: &str) {
        count(&self.metrics.flushes);
        self.stamps.change(namespace);
        let now = Instant::now();
        let mut pending = self.pending.lock();
        let namespace = if pending.len() < MAX_SETTLING || pending.contains_key(namespace) { namespace } else { "" };
        pending.insert(namespace.into(), SETTLES.iter().map(|after| now + *after).collect());
        drop(pending);
        self.more.notify_one();
    }

    async fn run(self: Arc<Self>) {
        loop {
            let next = self.pending.lock().values().filter_map(|times| times.front().copied()).min();
            let Some(next) = next else {
                self.more.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.more.notified() => continue,
            }
            let mut due = Vec::new();
            self.pending.lock().retain(|namespace, times| {
                if times.front().is_some_and(|time| *time <= next) {
                    times.pop_front();
                    due.push(namespace.clone());
                }
                !times.is_empty()
            });
            for namespace in due {
                self.stamps.change(&namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_at_once_and_again_when_it_has_settled() {
        let stamps = Arc::new(Stamps::new());
        let settling = Arc::new(Settling::new(stamps.clone(), Arc::default()));
        let task = crate::lifecycle::spawn("settling", settling.clone().run());
        let (a, b) = (stamps.of("a"), stamps.of("b"));
        settling.change("a");
        let mut last = a;
        for wait in [0, 1100, 3000] {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let now = stamps.of("a");
            assert!(now > last, "after {wait} ms");
            last = now;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((stamps.of("a"), stamps.of("b")), (last, b), "nothing more");
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_deleted_covers_its_tokens() {
        let revoked = Revoked::default();
        let account = UserInfo { username: "system:serviceaccount:a:b".into(), uid: "1".into(), ..Default::default() };
        let extra = [(POD_UID.to_owned(), vec!["2".to_owned()])].into();
        let bound = UserInfo { uid: "3".into(), extra, ..Default::default() };
        revoked.insert("");
        assert!(!revoked.covers(&account) && !revoked.covers(&UserInfo::default()));
        revoked.insert("1");
        assert!(revoked.covers(&account) && !revoked.covers(&bound));
        revoked.insert("2");
        assert!(revoked.covers(&bound));
    }
}
