use std::path::Path;

use tokio::time::sleep;

use super::super::tests::{get, kubeconfig};
use super::super::{ConfigSource, UpstreamConfig};
use super::*;
use crate::testing::{FakeServer, answer, padded, until};

/// A server whose namespace `kube-system` has this uid; none may be read if it is empty.
async fn cluster(uid: &'static str) -> FakeServer {
    FakeServer::plain(move |request, _| async move {
        match (request.uri().path(), uid) {
            (KUBE_SYSTEM, "") => answer(403, ""),
            (KUBE_SYSTEM, uid) => answer(200, format!(r#"{{"metadata":{{"uid":"{uid}"}}}}"#)),
            _ => answer(200, "here"),
        }
    })
    .await
}

async fn client(file: &Path, server: &FakeServer) -> Upstream {
    kubeconfig(file, &server.url(), "t");
    let settings = UpstreamConfig { check_interval: Duration::from_millis(10), ..UpstreamConfig::default() };
    let client = Upstream::new(ConfigSource::kubeconfig(file), settings).await.unwrap();
    client.send(Identity::Own, get("/")).await.unwrap();
    client
}

async fn uses(client: &Upstream, server: &FakeServer) {
    let authority = server.url().replace("http://", "");
    until(|| *client.authority() == *authority).await;
    client.send(Identity::Own, get("/used")).await.unwrap();
    assert!(server.uris().iter().any(|uri| uri == "/used"));
    assert!(!*client.moved().borrow());
}

#[tokio::test]
async fn another_server_of_the_same_cluster_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let first = cluster("a").await;
    let client = client(&file, &first).await;
    until(|| client.inner.cluster.uid.lock().is_some()).await;
    // The first one need not be there to say what cluster it was of.
    drop(first);
    let second = cluster("a").await;
    kubeconfig(&file, &second.url(), "t");
    uses(&client, &second).await;
}

#[tokio::test]
async fn a_server_of_another_cluster_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let first = cluster("a").await;
    let client = client(&file, &first).await;
    let second = cluster("b").await;
    kubeconfig(&file, &second.url(), "t");
    client.moved().wait_for(|moved| *moved).await.unwrap();
    client.send(Identity::Own, get("/")).await.unwrap();
    assert!(second.uris().iter().all(|uri| uri == KUBE_SYSTEM), "{:?}", second.uris());
}

#[tokio::test]
async fn what_a_server_says_of_its_cluster_has_a_bound() {
    for (bytes, uid) in [(MOST, Ok("a".to_owned())), (MOST + 1, Err(None))] {
        let text = padded(r#"{"metadata":{"uid":"a"}}"#, bytes);
        let server = FakeServer::plain(move |_, _| std::future::ready(answer(200, text.clone()))).await;
        let client = Upstream::from_config(server.config()).await.unwrap();
        assert_eq!(client.cluster_of(&client.inner.current.load_full(), false).await, uid);
    }
}

#[tokio::test]
async fn a_cluster_that_may_not_be_asked_is_asked_once_and_not_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = cluster("").await;
    let _client = client(&dir.path().join("kubeconfig"), &server).await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(server.uris(), ["/"]);
    until(|| server.uris().len() > 1).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(server.uris(), ["/", KUBE_SYSTEM]);
}

/// Its process has started a moment ago.
#[tokio::test]
async fn a_cluster_that_was_not_asked_yet_is_asked_for_the_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let first = cluster("a").await;
    let client = client(&file, &first).await;
    let second = cluster("a").await;
    kubeconfig(&file, &second.url(), "t");
    uses(&client, &second).await;
    assert_eq!(first.uris(), ["/", KUBE_SYSTEM]);
}

#[tokio::test]
async fn a_server_that_does_not_say_its_cluster_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kubeconfig");
    let first = cluster("a").await;
    let client = client(&file, &first).await;
    let silent = cluster("").await;
    kubeconfig(&file, &silent.url(), "t");
    until(|| silent.uris().len() >= 2).await;
    assert!(!*client.moved().borrow(), "the configuration may not be complete yet");
    let last = cluster("a").await;
    kubeconfig(&file, &last.url(), "t");
    uses(&client, &last).await;
    // For a minute.
    kubeconfig(&file, &silent.url(), "t");
    let long_ago = Instant::now().checked_sub(UNKNOWN_FOR).unwrap();
    loop {
        sleep(Duration::from_millis(10)).await;
        if let Some(candidate) = &mut client.inner.reload.lock().await.candidate {
            candidate.since = long_ago;
            break;
        }
    }
    client.moved().wait_for(|moved| *moved).await.unwrap();
    assert!(silent.uris().iter().all(|uri| uri == KUBE_SYSTEM), "{:?}", silent.uris());
}
