//! The resourceVersion that readers of a resource see never goes back: not over cut connections, relists, forwarded reads
//! between cached ones, informers that stop and start, nor another apiserver that is late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use informerd::lifecycle::spawn;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::Instant;

use super::{JSON, MERGE, Scene};
use crate::support::client::rv;

const CRON_TABS: &str = "/apis/stable.example.com/v1/crontabs";
const IN_A: &str = "/apis/stable.example.com/v1/namespaces/a/crontabs";

/// Reads of every kind, each of which names the revision that it is of.
const READS: &[(&str, &str)] = &[
    ("cached", "?resourceVersion=0"),
    ("consistent", ""),
    ("a page", "?limit=1"),
    ("selected", "?labelSelector=n&resourceVersion=0"),
    // Forwarded for their form.
    ("indented", "?pretty=true"),
];

/// Readers at work while something is done; everything that went back.
async fn read_while(scene: &Scene, done: impl AsyncFnOnce()) -> (usize, Vec<String>) {
    let (newest, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let wrong = Arc::new(Mutex::new((0, Vec::new())));
    let mut tasks = Vec::new();
    for reader in 0..4u64 {
        let (newest, stop, wrong, through) = (newest.clone(), stop.clone(), wrong.clone(), scene.through.clone());
        tasks.push(spawn("reader", async move {
            let mut random = StdRng::seed_from_u64(reader);
            while !stop.load(Ordering::SeqCst) {
                let (what, query) = READS[random.random_range(0..READS.len())];
                let collection = if random.random_bool(0.5) { CRON_TABS } else { IN_A };
                // Whatever any reader had been shown before this read began.
                let floor = newest.load(Ordering::SeqCst);
                let (head, body) =
                    through.send(Method::GET, &format!("{collection}{query}"), &[], "").await.into_parts();
                let Ok(body) = body.collect().await else { continue };
                if head.status.is_success() {
                    let seen = rv(&serde_json::from_slice(&body.to_bytes()).unwrap());
                    newest.fetch_max(seen, Ordering::SeqCst);
                    let mut wrong = wrong.lock();
                    wrong.0 += 1;
                    if seen < floor {
                        wrong.1.push(format!("{what} {collection}: {seen} after {floor}"));
                    }
                }
                tokio::time::sleep(Duration::from_millis(random.random_range(0..20))).await;
            }
        }));
    }
    // Through the daemon, which answers also while there is no apiserver.
    let (writes, stopped) = (scene.through.clone(), stop.clone());
    let writer = spawn("writer", async move {
        writes
            .request(
                Method::POST,
                IN_A,
                &[JSON],
                r#"{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"x","labels":{"n":"0"}}}"#,
            )
            .await;
        for n in 0.. {
            let body = format!(r#"{{"metadata":{{"labels":{{"n":"{n}"}}}}}}"#);
            writes.request(Method::PATCH, &format!("{IN_A}/x"), &[MERGE], &body).await;
            tokio::time::sleep(Duration::from_millis(if n % 20 == 0 { 500 } else { 10 })).await;
            if stopped.load(Ordering::SeqCst) {
                return;
            }
        }
    });
    done().await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    writer.await.unwrap();
    let mut wrong = wrong.lock();
    std::mem::take(&mut *wrong)
}

fn verdict((reads, wrong): (usize, Vec<String>)) {
    assert!(wrong.is_empty(), "of {reads} reads: {wrong:#?}");
    assert!(reads > 20, "{reads} reads only");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_cut_connections_and_relists() {
    let scene = Scene::start("consistentReads: { list: cache }\n").await;
    verdict(
        read_while(&scene, async || {
            for round in 0..8 {
                scene.proxy.lag(0, Duration::from_millis([0, 300][round % 2]));
                tokio::time::sleep(Duration::from_millis(400)).await;
                if round % 4 == 3 {
                    // The revision that the reflector would go on from is gone: it lists anew.
                    scene.cluster.compact().await;
                    scene.cluster.restart_apiserver().await;
                }
                scene.proxy.cut();
            }
        })
        .await,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn over_informers_that_stop_and_start() {
    let scene = Scene::start("idleTimeout: 1s\nconsistentReads: { list: probe }\n").await;
    let mut newest = 0;
    for round in 0..4 {
        let before = scene.served();
        let list = scene.through.json(&format!("{CRON_TABS}?resourceVersion=0")).await;
        assert!(rv(&list) >= newest, "round {round}: {} after {newest}", rv(&list));
        // Forwarded, and so never older than the store was when it was read.
        newest = newest.max(rv(&scene.through.json(&format!("{IN_A}?pretty=true")).await));
        assert!(scene.served() > before);
        let stopped = Instant::now() + Duration::from_secs(60);
        while !scene.daemon.daemon.factory.informers().is_empty() {
            assert!(Instant::now() < stopped, "the informer is not stopped");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let body = format!(r#"{{"metadata":{{"annotations":{{"round":"{round}"}}}}}}"#);
        scene.direct.request(Method::PATCH, "/api/v1/namespaces/a", &[MERGE], &body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_another_apiserver_that_is_late() {
    let scene = Scene::with_second("consistentReads: { list: probe }\n").await;
    scene.proxy.lag(1, Duration::from_millis(600));
    verdict(
        read_while(&scene, async || {
            for round in 0..10 {
                tokio::time::sleep(Duration::from_millis(500)).await;
                scene.proxy.choose((round + 1) % 2);
                if round % 2 == 0 {
                    scene.proxy.cut();
                }
            }
        })
        .await,
    );
}
