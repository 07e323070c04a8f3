use tokio::time::sleep;

use super::super::tests::kubeconfig;
use super::super::{ConfigSource, UpstreamConfig};
use super::*;
use crate::upstream::testing::{FakeServer, answer};

fn get(path: &str) -> Request<super::super::ReqBody> {
    Request::get(path).body(empty()).unwrap()
}

/// A server whose namespace `kube-system` has this uid.
async fn cluster(uid: &'static str) -> FakeServer {
    FakeServer::plain(move |request, _| async move {
        let is_namespace = request.uri().path() == "/api/v1/namespaces/kube-system";
        answer(200, if is_namespace { format!(r#"{{"metadata":{{"uid":"{uid}"}}}}"#) } else { "here".to_owned() })
    })
    .await
}

#[tokio::test]
async fn a_server_of_another_cluster_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let settings = UpstreamConfig { check_interval: Duration::from_millis(10), ..UpstreamConfig::default() };
    let first = cluster("a").await;
    for (uid, is_used) in [("a", true), ("b", false)] {
        kubeconfig(&file, &first.url(), "t");
        let client = Upstream::new(ConfigSource::kubeconfig(&file), settings.clone()).await.unwrap();
        client.send(Identity::Own, get("/")).await.unwrap();
        let second = cluster(uid).await;
        kubeconfig(&file, &second.url(), "t");
        let (mut moved, authority) = (client.moved(), second.url().replace("http://", ""));
        if is_used {
            while *client.authority() != *authority {
                sleep(Duration::from_millis(10)).await;
            }
            assert!(!*moved.borrow());
            client.send(Identity::Own, get("/")).await.unwrap();
            assert!(second.requests().len() > 1, "{uid}");
        } else {
            moved.wait_for(|moved| *moved).await.unwrap();
            assert_ne!(*client.authority(), *authority);
            let before = second.requests().len();
            client.send(Identity::Own, get("/")).await.unwrap();
            assert_eq!(second.requests().len(), before, "{uid}");
        }
    }
    // Nobody can say whether a server that is gone was of the same cluster.
    let gone = cluster("c").await;
    kubeconfig(&file, &gone.url(), "t");
    let client = Upstream::new(ConfigSource::kubeconfig(&file), settings).await.unwrap();
    client.send(Identity::Own, get("/")).await.unwrap();
    drop(gone);
    kubeconfig(&file, &cluster("c").await.url(), "t");
    client.moved().wait_for(|moved| *moved).await.unwrap();
}
