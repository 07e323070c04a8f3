//! An etcd that is restored from a backup under a kube-apiserver that goes on. Its own cache does not notice: it lists and
//! watches what its store does not hold any more, until it is restarted. So do we, and say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::support::Through;
use crate::support::client::Client;
use http::Method;
use informerd::upstream::client::ConfigSource;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The cluster's etcd, and its files as they were at one moment.
struct Backup {
    pid: u32,
    executable: PathBuf,
    arguments: Vec<String>,
    data: PathBuf,
    copy: PathBuf,
}

impl Backup {
    fn of(cluster: &Cluster) -> Self {
        let pid = cluster.info.etcd_pid.unwrap();
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        let arguments: Vec<_> = line.split_terminator('\0').skip(1).map(str::to_owned).collect();
        let data = arguments.iter().skip_while(|argument| *argument != "--dir").nth(1).unwrap();
        let (data, copied) = (PathBuf::from(data), PathBuf::from(format!("{data}.backup")));
        signal(pid, "STOP");
        copy(&data, &copied);
        signal(pid, "CONT");
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        Self { pid, executable, arguments, data, copy: copied }
    }

    /// Runs etcd from the copy, at the same address.
    async fn restore(&self) -> tokio::process::Child {
        signal(self.pid, "KILL");
        sleep(Duration::from_millis(200)).await;
        std::fs::remove_dir_all(&self.data).unwrap();
        std::fs::rename(&self.copy, &self.data).unwrap();
        let mut command = tokio::process::Command::new(&self.executable);
        // It ends with its standard input.
        command.args(&self.arguments).stdin(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        command.spawn().unwrap()
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let bound = Instant::now() + Duration::from_secs(60);
    while !so().await {
        assert!(Instant::now() < bound, "not in 60 s: {what}");
        sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_set_back_under_its_apiserver() {
    let cluster = Cluster::start().await;
    let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
    let create = async |name: &str| {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        let json = [("content-type", "application/json")];
        direct.request(Method::POST, CONFIG_MAPS, &json, &object.to_string()).await.status
    };
    assert_eq!(create("kept").await, 201);
    let backup = Backup::of(&cluster);
    for n in 0..5 {
        assert_eq!(create(&format!("undone-{n}")).await, 201);
    }
    let daemon = Through::start(ConfigSource::kubeconfig(cluster.admin()), "storeCheck: 1s\n").await;
    daemon.ready().await;
    let through = Client::new(&daemon.url);
    let got = |client: &Client| {
        let client = client.clone();
        async move { client.get(&format!("{CONFIG_MAPS}/undone-1")).await.status.as_u16() }
    };
    assert!(names(&through.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await).contains(&"undone-1"));
    // Two comparisons, so that one knows an object of the time before.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(got(&through).await, 200);

    let mut etcd = backup.restore().await;
    until("the apiserver reads the restored store", async || got(&direct).await == 404).await;
    until("a get says what the store does", async || got(&through).await == 404).await;
    // More writes than were undone: the store's revision is past ours, too.
    for n in 0..40 {
        until("the apiserver writes", async || matches!(create(&format!("new-{n}")).await.as_u16(), 201 | 409)).await;
    }
    cluster.restart_apiserver().await;
    let direct = Client::tls(&cluster.info.server, &cluster.info.ca, "admin-token");
    until("lists are the store's", async || {
        let theirs = direct.get(CONFIG_MAPS).await;
        let ours = through.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        let whole = theirs.status == 200 && ours.status == 200;
        whole && theirs.json()["items"] == ours.json()["items"] && !names(&ours.json()).contains(&"undone-1")
    })
    .await;
    etcd.kill().await.unwrap();
}
