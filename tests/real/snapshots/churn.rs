//! Clients that come back to each new daemon from where they were, while writes go on all the time: over all daemons
//! they hear what one watch at the apiserver hears.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::life::{Files, Kept, Life, assert_own, direct};
use crate::cluster::Cluster;
use crate::grpc::fixtures::{Frame, filtered, labels, namespace, resume, watch_from};
use crate::grpc::real::churn_while;
use crate::grpc::told::{accept, by_http, is_last, line, line_of, parts};
use crate::support::client::{Client, rv};
use crate::support::{eventually, within};
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd::lifecycle;
use serde_json::Value;
use tokio::sync::watch;
use tonic::transport::Endpoint;

/// How many events a client has heard.
type Heard = Arc<AtomicU64>;

/// Time before a client tries again to reach a daemon.
const PAUSE: Duration = Duration::from_millis(20);

/// What a watch by HTTP hears over all daemons, up to the last write.
async fn http_over_restarts(urls: watch::Receiver<String>, path: &str, mut from: u64, heard: Heard) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let client = Client::new(&urls.borrow().clone());
        let path = format!("{path}watch=1&allowWatchBookmarks=true&resourceVersion={from}");
        let Ok(mut watch) = client.try_watch(&path).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if watch.status == 503 {
            // This daemon ends.
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        assert_eq!(watch.status, 200, "{path}");
        assert_own(&path, &watch.headers);
        while let Ok(Some(event)) = watch.next_line().await {
            let value: Value = serde_json::from_str(&event).unwrap();
            assert_ne!(value["type"], "ERROR", "{path}: {event}");
            from = rv(&value["object"]);
            if value["type"] != "BOOKMARK" {
                let (kind, object) = parts(&event);
                lines.push(line(kind, v1::Encoding::Json, object));
                heard.fetch_add(1, Ordering::Relaxed);
                if is_last(lines.last().unwrap()) {
                    return lines;
                }
            }
        }
    }
}

/// What a watch tells over all daemons by gRPC, up to the last write.
async fn grpc_over_restarts(
    mut urls: watch::Receiver<String>,
    selection: v1::Selection,
    from: u64,
    heard: Heard,
) -> Vec<String> {
    let mut request = watch_from(selection.clone(), from);
    let mut told = Vec::new();
    loop {
        let url = urls.borrow_and_update().clone();
        let opening = async {
            let channel = Endpoint::from_shared(url).unwrap().connect().await.ok()?;
            ObjectsClient::new(channel).watch(request.clone()).await.ok()
        };
        // The library may wait for ever for the answer to a request that it has queued while the connection ended.
        let opened = tokio::select! {
            opened = opening => opened,
            Ok(()) = urls.changed() => None,
        };
        let Some(response) = opened else {
            // The daemon of this address ends: there will be another.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let mut stream = response.into_inner();
        let mut first = true;
        // An error is the end of a daemon that was killed.
        while let Ok(Some(message)) = stream.message().await {
            request = resume(selection.clone(), &message.resume_token);
            match message.frame.unwrap() {
                Frame::Events(batch) => {
                    for event in batch.events {
                        told.push(line_of(&event, selection.encoding()));
                        heard.fetch_add(1, Ordering::Relaxed);
                    }
                    if told.last().is_some_and(|line| is_last(line)) {
                        return told;
                    }
                }
                Frame::Started(started) => assert!(std::mem::take(&mut first) && started.resumed, "{selection:?}"),
                Frame::Goodbye(_) | Frame::Bookmark(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The daemons, one after the other.
struct Lives<'a> {
    cluster: &'a Cluster,
    kept: Kept,
    urls: watch::Sender<String>,
    heard: Vec<Heard>,
    steps: Arc<AtomicU64>,
}

impl Lives<'_> {
    async fn start(&self) -> Life {
        // `packed`: what the window replaces is kept as differences.
        let yaml = self.kept.yaml("[{resource: configmaps, pin: true, form: packed}]");
        let life = Life::start(self.cluster, &yaml).await;
        self.urls.send_replace(life.through.url.clone());
        life
    }

    /// The next daemon, once every client has heard so many events from it. Something has happened since the last one.
    async fn next(&self, events: u64) -> Life {
        let before = self.steps.load(Ordering::Relaxed);
        eventually("writes go on", || self.steps.load(Ordering::Relaxed) > before + 20).await;
        let life = self.start().await;
        self.events(events).await;
        assert_eq!(life.snapshots().await, (2, 0), "one for each encoding");
        assert!(!life.listed("configmaps").await);
        for informer in life.through.daemon.factory.informers() {
            assert_eq!(informer.cache().stats().backfills_total, 0, "the window was kept: {informer:?}");
        }
        life
    }

    /// Waits until every client has heard so many more events.
    async fn events(&self, more: u64) {
        for heard in &self.heard {
            let before = heard.load(Ordering::Relaxed);
            eventually("events come", || heard.load(Ordering::Relaxed) >= before + more).await;
        }
    }

    async fn appended(&self) -> Files {
        let before = self.kept.written(2).await;
        self.kept.appended(&before).await
    }
}

pub(super) async fn watches_hear_each_event_once(cluster: &Cluster) {
    for namespace in ["a", "b"] {
        cluster.namespace(namespace).await;
    }
    let direct = direct(cluster);
    let kept = Kept::new();
    let (urls, at) = watch::channel(String::new());
    let mut lives = Lives { cluster, kept, urls, heard: Vec::new(), steps: Arc::default() };
    let life = lives.start().await;
    life.through.ready().await;

    let collection = "/api/v1/namespaces/a/configmaps";
    let from = rv(&life.client.json(&format!("{collection}?resourceVersion=0")).await);
    let mut watches = Vec::new();
    for (query, filter) in [("", namespace("a")), ("labelSelector=app%3Dx&", labels("app=x"))] {
        let path = format!("{collection}?{query}");
        let filter = v1::Filter { namespace: "a".into(), ..filter };
        for (encoding, by_grpc) in
            [(v1::Encoding::Json, false), (v1::Encoding::Json, true), (v1::Encoding::KubeProtobuf, true)]
        {
            let target = format!("{path}watch=1&resourceVersion={from}");
            let theirs = direct.watch_as(&target, &[("accept", accept(encoding))]).await;
            let theirs = lifecycle::spawn("theirs", by_http(theirs, encoding));
            let (at, path, heard) = (at.clone(), path.clone(), Heard::default());
            lives.heard.push(heard.clone());
            let selection = v1::Selection { encoding: encoding.into(), ..filtered("configmaps", vec![filter.clone()]) };
            let ours = lifecycle::spawn("ours", async move {
                if by_grpc {
                    grpc_over_restarts(at, selection, from, heard).await
                } else {
                    http_over_restarts(at, &path, from, heard).await
                }
            });
            watches.push((target, encoding, by_grpc, ours, theirs));
        }
    }
    let over = Arc::new(AtomicBool::new(false));
    let writes = lifecycle::spawn("writes", {
        let (over, steps, direct) = (over.clone(), lives.steps.clone(), direct.clone());
        async move {
            let wanted = |step| {
                steps.store(step, Ordering::Relaxed);
                !over.load(Ordering::Relaxed)
            };
            churn_while(&direct, wanted).await;
        }
    });

    lives.appended().await;
    life.kill().await;
    lives.kept.tear();
    lives.next(20).await.stop().await;
    // Killed so early that the next one may read the same files.
    lives.next(1).await.kill().await;
    let life = lives.next(20).await;
    lives.appended().await;
    life.kill().await;
    let life = lives.next(20).await;
    over.store(true, Ordering::Relaxed);
    writes.await.unwrap();
    for (target, encoding, by_grpc, ours, theirs) in watches {
        let ours = within("the last write comes", ours).await.unwrap();
        let theirs = theirs.await.unwrap();
        let wrong = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
        assert_eq!((wrong, ours.len()), (None, theirs.len()), "{target} {encoding:?} by gRPC: {by_grpc}");
        assert!(ours.len() > 60, "{target}: {}", ours.len());
    }
    life.kill().await;
}
