//! Memory that is not enough: what does not fit is forwarded, and the process lives.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use informerd::sim::{Server, Verb};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::fixtures::{CONFIG_MAPS, admin, admin_at, config_map, kubeconfig, names, next_event, pod, reads};
use crate::support::client::Client;
use crate::support::{Through, eventually};

const PODS: &str = "/api/v1/pods";

fn large(name: &str, bytes: usize) -> Value {
    let mut object = config_map("a", name);
    object["data"] = json!({"x": "x".repeat(bytes)});
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_forwarded_with_the_reason_and_readiness_does_not_wait_for_it() {
    let mut builder = Server::builder().object(pod("a", "one", "n1"));
    for i in 0..20 {
        builder = builder.object(large(&format!("m{i:02}"), 200 << 10));
    }
    let server = builder.start().await.unwrap();
    let yaml = "limits: {memory: 2Mi}\nnotSynced: {wait: 60s}\nexplainHeader: true\n\
        resources: [{resource: configmaps, pin: true}, {resource: pods, pin: true}]\n";
    let through = Through::before(&server, yaml).await;
    through.ready().await;
    let client = Client::new(&through.url);
    // Not after a minute of waiting, but at once.
    let answer = client.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(answer.headers["x-informerd-plan"].to_str().unwrap(), "forwarded; reason=memory");
    let direct = Client::new(&server.url()).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(answer.text(), direct.text(), "untouched");
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    assert_eq!(next_event(&mut watch).await["type"], "ADDED");
    assert_eq!(reads(&through, "forward", "memory"), 2);
    let pods = client.get(&format!("{PODS}?resourceVersion=0")).await;
    assert_eq!(names(&pods.json()), ["one"]);
    assert_eq!(reads(&through, "forward", "memory"), 2, "what fits is served");

    let (_, text) = admin(&through, "/debug/caches").await;
    let shown: Value = serde_json::from_str(&text).unwrap();
    let cache = &shown["caches"][0];
    assert_eq!(cache["resource"], "configmaps");
    assert_eq!((&cache["state"], &cache["ready"]), (&json!("refused"), &json!(false)));
    assert!(cache["lastError"].as_str().unwrap().contains("of 2 MiB free for caches"), "{cache}");
    let (_, metrics) = admin(&through, "/metrics").await;
    let labels = r#"group="",version="v1",resource="configmaps",namespace="",selector="",encoding="json""#;
    assert!(metrics.contains(&format!("informerd_cache_refused{{{labels}}} 1")), "{metrics}");
    assert!(metrics.contains("informerd_caches_limit_bytes 2097152"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_outgrows_the_memory_ends_its_watches_as_the_apiserver_does_and_is_forwarded() {
    let server = Server::builder().object(large("m00", 200 << 10)).start().await.unwrap();
    let through = Through::before(&server, "limits: {memory: 2Mi}\n").await;
    let client = Client::new(&through.url);
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion=0")).await;
    next_event(&mut watch).await;
    assert_eq!(server.counts().open_watches("configmaps"), 1);
    for i in 1..15 {
        server.create(large(&format!("m{i:02}"), 200 << 10)).unwrap();
    }
    let mut last = 0;
    // A clean end, after which the client goes on where it was.
    while let Some(event) = watch.next().await.expect("a clean end") {
        assert_ne!(event["type"], "ERROR", "{event}");
        last = crate::support::client::rv(&event["object"]);
    }
    let mut seen = server.state("configmaps").values().filter(|rv| **rv <= last).count();
    let mut watch = client.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={last}")).await;
    while seen < 15 {
        assert_eq!(next_event(&mut watch).await["type"], "ADDED");
        seen += 1;
    }
    assert!(reads(&through, "forward", "memory") >= 1);
    let list = client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    assert_eq!(names(&list).len(), 15);
    eventually("what it held is free", || server.counts().open_watches("configmaps") == 1).await;
}

/// A process that must not use more memory than this.
struct Limited {
    child: Child,
    url: String,
    admin: std::net::SocketAddr,
    log: Arc<Mutex<String>>,
    group: Option<PathBuf>,
    _directory: tempfile::TempDir,
}

const LIMIT: usize = 160 << 20;

/// The end of a real limit is a killed process. A cgroup where this machine lets us make one; otherwise the kernel's limit
/// on a process's data, beyond which allocating fails, which is as deadly.
fn group() -> Option<PathBuf> {
    let name = format!("informerd-test-{}", std::process::id());
    for (mount, file) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
        let group = Path::new(mount).join(&name);
        if std::fs::create_dir(&group).is_ok() {
            if std::fs::write(group.join(file), LIMIT.to_string()).is_ok() {
                return Some(group);
            }
            std::fs::remove_dir(&group).ok();
        }
    }
    None
}

impl Limited {
    async fn start(server: &Server, arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let group = group();
        let binary = env!("CARGO_BIN_EXE_informerd");
        let mut command = match &group {
            Some(group) => {
                let mut command = Command::new("sh");
                let join = format!("echo $$ >{}/cgroup.procs && exec {binary} \"$@\"", group.display());
                command.args(["-c", &join, "sh"]);
                command
            }
            None => {
                let mut command = Command::new("prlimit");
                command.args([&format!("--data={}", 3 * LIMIT), binary]);
                command.args(["--limits-memory", &(LIMIT / 100 * 60).to_string()]);
                command
            }
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("INFORMERD_") {
                command.env_remove(name);
            }
        }
        command.arg("--kubeconfig").arg(kubeconfig(server, directory.path(), "t"));
        command.args(["--listen", "http://127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json"]);
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("sh or prlimit");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let (mut url, mut admin) = (None, None);
        while url.is_none() || admin.is_none() {
            let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("{}", log.lock()));
            log.lock().push_str(&format!("{line}\n"));
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            // The fields stand beside the message or in an object of their own.
            let fields = if line["fields"].is_object() { &line["fields"] } else { &line };
            match fields["message"].as_str() {
                Some("serving") => url = fields["address"].as_str().map(str::to_owned),
                Some("admin") => admin = fields["address"].as_str().and_then(|address| address.parse().ok()),
                _ => {}
            }
        }
        let kept = log.clone();
        informerd::lifecycle::spawn("log", async move {
            while let Ok(Some(line)) = lines.next_line().await {
                kept.lock().push_str(&format!("{line}\n"));
            }
        });
        Self { child, url: url.unwrap(), admin: admin.unwrap(), log, group, _directory: directory }
    }

    async fn lives(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it has ended: {ended:?}\n{}", self.log.lock());
        let metrics = self.metrics().await;
        let resident = metrics.lines().find(|line| line.starts_with("process_resident_memory_bytes ")).unwrap();
        eprintln!("{resident}");
    }

    async fn metrics(&self) -> String {
        admin_at(self.admin, "/metrics").await.1
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.child.start_kill().ok();
        if let Some(group) = &self.group {
            // There while the process is: then it is left to the machine's end.
            std::fs::remove_dir(group).ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_with_a_memory_limit_forwards_what_does_not_fit_and_is_never_killed() {
    let mut builder = Server::builder().object(pod("a", "one", "n1"));
    for i in 0..400 {
        builder = builder.object(large(&format!("m{i:03}"), 512 << 10));
    }
    let server = builder.start().await.unwrap();
    let resources = "[{resource: pods, pin: true}, {resource: configmaps, pin: true}]";
    let mut limited = Limited::start(&server, &["--resources", resources]).await;
    while admin_at(limited.admin, "/readyz").await.0 != 200 {
        limited.lives().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(limited.log.lock().contains("pinned, but not cached, its reads are forwarded"));
    let client = Client::new(&limited.url);
    assert_eq!(names(&client.json(&format!("{PODS}?resourceVersion=0")).await), ["one"]);

    // 200 MB at a time through 160.
    let wanted = Client::new(&server.url()).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let lists = (0..3).map(|_| client.get("/api/v1/configmaps?resourceVersion=0"));
    for list in futures_util::future::join_all(lists).await {
        assert!(list.status == 200 && list.body == wanted.body, "{}: {} bytes", list.status, list.body.len());
    }
    limited.lives().await;

    // What is cached grows beyond everything.
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion=0")).await;
    next_event(&mut watch).await;
    for i in 0..260 {
        let mut pod = pod("a", &format!("large-{i}"), "n1");
        pod["metadata"]["annotations"] = json!({"x": "x".repeat(512 << 10)});
        server.create(pod).unwrap();
    }
    while watch.next().await.expect("a clean end").is_some() {}
    limited.lives().await;
    let list = client.json(&format!("{PODS}?resourceVersion=0")).await;
    assert_eq!(names(&list).len(), 261);
    limited.lives().await;
    let metrics = limited.metrics().await;
    assert!(metrics.contains("informerd_caches_recalled_total 1"), "{metrics}");
    if let Some(group) = &limited.group {
        let killed = std::fs::read_to_string(group.join("memory.events"))
            .or_else(|_| std::fs::read_to_string(group.join("memory.oom_control")))
            .unwrap_or_default();
        assert!(!killed.lines().any(|line| line.starts_with("oom_kill ") && line != "oom_kill 0"), "{killed}");
    }
    assert!(server.counts().requests(Verb::Watch, "pods") >= 1);
    limited.child.kill().await.unwrap();
}
