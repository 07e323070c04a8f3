//! A line for every request, over HTTP and gRPC.

use std::path::Path;
use std::time::Duration;

use informerd_sim::{self as sim, Server};
use serde_json::Value;

use super::fixtures::{CONFIG_MAPS, config_map, syncs_late};
use crate::support::binary::{Binary, informerd};
use crate::support::{Through, eventually};

/// The lines so far, without what differs from run to run.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_has_a_line_in_the_access_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let yaml = format!("access: {{log: {}}}\n", log.display());
    let (server, through, client) = Through::simulated([config_map("a", "one")], &yaml).await;
    syncs_late(&server, "configmaps", 1);
    let secret = [("authorization", "Bearer s3cret"), ("user-agent", "a-program/1 (x)")];
    let list = format!("{CONFIG_MAPS}?resourceVersion=0&access_token=s3cret");
    let body = client.request(http::Method::GET, &list, &secret, "").await.body.len();
    client.get(&format!("{CONFIG_MAPS}?resourceVersion=0&limit=5")).await;
    client.get("/version").await;
    client.get("/api/v1/namespaces/a/configmaps/none?resourceVersion=0").await;
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    watch.next_event().await;
    drop(watch);
    let mut get = informerd("get configmaps.v1. -n a");
    assert!(get.env("INFORMERD_ADDRESS", &through.url).output().await.unwrap().status.success());

    let of_get = |line: &Value| line["path"] == "/informerd.v1.Objects/List";
    eventually("all are written", || lines(&log).len() >= 7 && lines(&log).iter().any(of_get)).await;
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("s3cret"), "{text}");
    let lines = lines(&log);
    let said = |line: &Value| {
        ["protocol", "method", "path", "status", "plan", "reason"]
            .map(|key| line[key].to_string().replace('"', ""))
            .join(" ")
    };
    let all: Vec<_> = lines.iter().map(said).collect();
    for expected in [
        "HTTP/1.1 GET /api/v1/configmaps?resourceVersion=0 200 waited not_synced",
        "HTTP/1.1 GET /api/v1/configmaps?resourceVersion=0&limit=5 200 served null",
        "HTTP/1.1 GET /version 200 forwarded null",
        "HTTP/1.1 GET /api/v1/namespaces/a/configmaps/none?resourceVersion=0 404 refused not_found",
        "HTTP/1.1 GET /api/v1/configmaps?watch=1&resourceVersion=0 200 served null",
        "gRPC POST /informerd.v1.Objects/List 200 served null",
    ] {
        assert!(all.iter().any(|line| line == expected), "{expected}\nin\n{all:#?}");
    }
    let first = &lines[0];
    assert_eq!((&first["client"], &first["program"]), (&"127.0.0.1".into(), &"a-program/1".into()));
    assert_eq!((&first["bytes"], &first["user"]), (&body.into(), &"".into()));
    assert!(first["durationMs"].as_f64().unwrap() > 0.0 && first["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(lines.iter().find(|line| of_get(line)).unwrap()["code"], 0);
    assert_eq!(through.daemon.http.access_log.dropped.get(), 0);
    through.stop(Duration::ZERO).await;
}

/// As logrotate does it, while requests are answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_file_is_left_on_sighup_and_no_line_is_lost() {
    let server = Server::builder().start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let binary = Binary::start(&sim::kubeconfig("sim", &server.url()), &["--access-log", log.to_str().unwrap()]).await;
    binary.ready().await;
    let mut files = vec![log.clone()];
    let mut asked = 0;
    for n in 1..=3 {
        let client = binary.client();
        let old = directory.path().join(format!("access.log.{n}"));
        let ask = async {
            for _ in 0..50 {
                assert_eq!(client.get("/version").await.status, 200);
            }
        };
        let rotate = async {
            eventually("there is a line", || !lines(&log).is_empty()).await;
            std::fs::rename(&log, &old).unwrap();
            binary.signal("HUP");
            eventually("there is another file", || log.exists()).await;
        };
        tokio::join!(ask, rotate);
        // Nothing has to be rotated for it.
        binary.signal("HUP");
        files.push(old);
        asked += 50;
    }
    let all = || files.iter().map(|file| lines(file).len()).sum::<usize>();
    eventually("every request has its line", || all() == asked).await;
    assert_eq!(binary.metric("informerd_access_log_dropped_total").await, 0.0);
    assert_eq!(binary.stop().await.code(), Some(0), "it goes on until it is told to end");
}
