use std::collections::HashMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::*;
use crate::apiserver::testing::{FakeServer, answer, streamed, until};
use crate::auth::config::ClientCaSource;
use crate::auth::user::{POD_UID, UserInfo};

/// The open watches of an apiserver, by the path of their collection.
type Watches = Arc<Mutex<HashMap<String, mpsc::Sender<Bytes>>>>;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn server(watches: &Watches) -> FakeServer {
    let watches = Arc::clone(watches);
    FakeServer::plain(move |request, _| {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let answer = if is_watch {
            let (sender, response) = streamed();
            watches.lock().insert(request.uri().path().to_owned(), sender);
            response
        } else {
            answer(200, r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#)
        };
        std::future::ready(answer)
    })
    .await
}

#[tokio::test]
async fn it_starts_with_a_ca_that_can_be_read() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("empty"), "").unwrap();
    // Nothing listens there.
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let error = |name: &str| {
        let client_ca = Some(ClientCaSource::File(directory.path().join(name)));
        let config = AuthConfig { client_ca, ..AuthConfig::default() };
        Delegated::start(&config, &upstream, tokio::sync::watch::channel(false).1, Arc::default(), &Fatal::new())
            .err()
            .unwrap()
    };
    assert!(matches!(error("none"), StartError::Read { .. }));
    assert!(matches!(error("empty"), StartError::ClientCa { .. }));
}

#[tokio::test]
async fn what_takes_rights_away_is_watched_and_counts_in_its_namespace() {
    for node in [None, Some("n.1")] {
        let watches = Watches::default();
        let server = server(&watches).await;
        let upstream = Upstream::from_config(server.config()).await.unwrap();
        let config = AuthConfig { node: node.map(str::to_owned), ..AuthConfig::default() };
        let metrics = Arc::<AuthMetrics>::default();
        let delegated = Delegated::start(
            &config,
            &upstream,
            tokio::sync::watch::channel(false).1,
            Arc::clone(&metrics),
            &Fatal::new(),
        )
        .unwrap();
        assert!(!delegated.generations.is_watched(), "no watch is open");
        until(|| metrics.watches_live.get() == 4).await;
        assert!(delegated.generations.is_watched());
        until(|| watches.lock().len() == 5 + usize::from(node.is_some())).await;
        let tell = |path: &str, kind: &str, namespace: &str, uid: &str| {
            let metadata = serde_json::json!({"namespace": namespace, "uid": uid, "resourceVersion": "2"});
            let event = format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{metadata}}}}}\n");
            watches.lock()[path].try_send(event.into()).unwrap();
        };
        let change = |namespace| delegated.generations.of(namespace).change;
        for (resource, namespace) in
            [("roles", "a"), ("rolebindings", "a"), ("clusterroles", ""), ("clusterrolebindings", "")]
        {
            let before = ["a", "b"].map(change);
            tell(&format!("{RBAC}/{resource}"), "MODIFIED", namespace, "");
            until(|| change("a") > before[0]).await;
            assert_eq!(change("b") > before[1], namespace.is_empty(), "{resource}");
        }

        let account = UserInfo { uid: "1".into(), ..UserInfo::default() };
        let extra = [(POD_UID.to_owned(), vec!["2".to_owned()])].into();
        let bound = UserInfo { extra, ..UserInfo::default() };
        tell("/api/v1/serviceaccounts", "DELETED", "a", "1");
        until(|| delegated.revoked.covers(&account)).await;
        // Not those of other nodes: each node would have to read the pods of all.
        assert_eq!(watches.lock().contains_key("/api/v1/pods"), node.is_some());
        if node.is_some() {
            let uris = server.uris();
            let pods: Vec<_> = uris.iter().filter(|uri| uri.starts_with("/api/v1/pods?")).collect();
            assert!(pods.iter().all(|uri| uri.contains("&fieldSelector=spec.nodeName%3Dn%2E1")), "{pods:?}");
            tell("/api/v1/pods", "DELETED", "a", "2");
            until(|| delegated.revoked.covers(&bound)).await;
        }

        // A change is asked about again later, when more authorizers know it.
        tokio::time::pause();
        until(|| metrics.settlings.get() > 0).await;
        tokio::time::resume();
    }
}
