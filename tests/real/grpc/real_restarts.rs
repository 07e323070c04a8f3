//! Restarts under churn, in front of the real kube-apiserver: whoever comes back hears each event once, and all of them,
//! as from a watch at the apiserver itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::lifecycle;
use informerd::upstream::client::ConfigSource;
use tokio::sync::watch;
use tonic::transport::Endpoint;

use super::fixtures::{Frame, client, consistent, filtered, labels, list, namespace, resume, watch_of};
use super::real::{churn_while, world};
use super::told::{accept, by_http, is_last, line};
use crate::support::Through;
use crate::world::World;

const RESTARTS: usize = 4;

/// What a watch tells over all daemons, up to the last write, and how often it came back. Each event is counted as it comes.
pub(crate) async fn over_restarts(
    mut urls: watch::Receiver<String>,
    selection: v1::Selection,
    from: u64,
    heard: Arc<AtomicU64>,
) -> (Vec<String>, usize) {
    let start = Some(v1::watch_request::Start::FromResourceVersion(from.to_string()));
    let mut request = v1::WatchRequest { start, ..watch_of(selection.clone()) };
    let (mut told, mut opened) = (Vec::new(), 0);
    loop {
        let url = urls.borrow_and_update().clone();
        let opening = async {
            let channel = Endpoint::from_shared(url).unwrap().connect().await.ok()?;
            ObjectsClient::new(channel).watch(request.clone()).await.ok()
        };
        let Some(response) = opening.await else {
            // The daemon of this address ends: there will be another.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut stream = response.into_inner();
        let mut first = true;
        opened += 1;
        // An error is the end of a daemon that was killed.
        while let Ok(Some(message)) = stream.message().await {
            request = resume(selection.clone(), &message.resume_token);
            match message.frame.unwrap() {
                Frame::Events(batch) => {
                    for event in batch.events {
                        let kind = event.r#type().as_str_name().trim_start_matches("TYPE_");
                        told.push(line(kind, selection.encoding(), &event.object));
                        heard.fetch_add(1, Ordering::Relaxed);
                    }
                    if told.last().is_some_and(|line| is_last(line)) {
                        return (told, opened);
                    }
                }
                Frame::Started(started) => assert!(std::mem::take(&mut first) && started.resumed, "{selection:?}"),
                Frame::Goodbye(_) | Frame::Bookmark(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_comes_once_over_restarts_under_churn() {
    let World { cluster, mut daemon, direct, .. } = world().await;
    let request = v1::ListRequest { selection: Some(filtered("configmaps", vec![])), consistency: Some(consistent()) };
    let from = list(&mut client(&daemon).await, request).await.0.resource_version.parse().unwrap();
    let (at, urls) = watch::channel(daemon.url.clone());
    let mut watches = Vec::new();
    for encoding in [v1::Encoding::Json, v1::Encoding::KubeProtobuf] {
        for (path, filters) in [
            ("/api/v1/configmaps?", vec![]),
            ("/api/v1/configmaps?labelSelector=app%3Dx&", vec![labels("app=x")]),
            ("/api/v1/configmaps?labelSelector=app+in+(x,y)&", vec![labels("app=y"), labels("app=x")]),
            ("/api/v1/namespaces/a/configmaps?", vec![namespace("a")]),
        ] {
            let target = format!("{path}watch=1&resourceVersion={from}");
            let theirs = direct.watch_as(&target, &[("accept", accept(encoding))]).await;
            let theirs = lifecycle::spawn("by-http", by_http(theirs, encoding));
            let selection = v1::Selection { encoding: encoding.into(), ..filtered("configmaps", filters) };
            let ours = lifecycle::spawn("by-grpc", over_restarts(urls.clone(), selection, from, Arc::default()));
            watches.push((path, encoding, theirs, ours));
        }
    }
    let over = Arc::new(AtomicBool::new(false));
    let writer = direct.clone();
    let writes = lifecycle::spawn("writes", {
        let over = over.clone();
        async move { churn_while(&writer, |_| !over.load(Ordering::Relaxed)).await }
    });
    let (mut filled, mut failed) = (0, 0);
    let mut count = |daemon: &Through| {
        for informer in daemon.daemon.factory.informers() {
            let stats = informer.cache().stats();
            filled += stats.backfilled_events_total;
            failed += stats.backfills_failed_total;
        }
    };
    for _ in 0..RESTARTS {
        // Long enough for everybody to come back.
        while daemon.daemon.grpc.events.get() < 1000 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        count(&daemon);
        daemon.stop(Duration::from_secs(10)).await;
        daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), "").await;
        at.send_replace(daemon.url.clone());
    }
    while daemon.daemon.grpc.watches.get() < watches.len() as u64 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    over.store(true, Ordering::Relaxed);
    writes.await.unwrap();
    for (path, encoding, theirs, ours) in watches {
        let (told, opened) = ours.await.unwrap();
        let theirs = theirs.await.unwrap();
        let wrong = told.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
        assert_eq!((wrong, told.len()), (None, theirs.len()), "{path} {encoding:?}");
        assert!(opened > RESTARTS, "{path} {encoding:?}: {opened}");
    }
    count(&daemon);
    assert!(filled > 0, "nothing happened while nobody was there");
    assert_eq!(failed, 0);
}
