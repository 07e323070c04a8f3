//! A disk that is full when the binary starts, and gets room while it runs, or that can only be read. The disk is a tmpfs that only
//! the binary sees. Where the system lets nobody mount one, these tests fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use crate::support::binary::BINARY;
use crate::support::client::Client;
use crate::support::lines::keep;
use crate::support::ports::Port;
use crate::support::{eventually, file, tied, until};
use informerd_sim::{self as sim, Server};
use parking_lot::Mutex;
use tokio::process::Child;

const CONFIG_MAPS: &str = "/api/v1/configmaps?resourceVersion=0";
const FULL: &str = "mount -t tmpfs -o size=4k tmpfs DISK && head -c 4096 /dev/zero > DISK/filler";

/// The binary with its state and its access log on a full disk.
struct Daemon {
    child: Child,
    client: Client,
    said: Arc<Mutex<String>>,
    _ports: [Port; 3],
}

impl Daemon {
    /// `mount` makes the DISK. `log` is where the shell sends what the binary says; nothing for standard error.
    fn on(server: &Server, directory: &Path, mount: &str, access_log: &str, log: &str) -> Self {
        let kubeconfig = file(directory, "kubeconfig", sim::kubeconfig("sim", &server.url()));
        let disk = directory.join("disk");
        std::fs::create_dir(&disk).unwrap();
        let ports = [Port::free(), Port::free(), Port::free()];
        let [http, https, admin] = ports.each_ref().map(|port| port.address);
        let script = format!(
            "cd / && {mount} && exec {BINARY} run \
             --kubeconfig {kubeconfig} --listen http://{http} --listen https://{https} --admin {admin} \
             --state-dir DISK/state --access-log {access_log} {log}",
            kubeconfig = kubeconfig.display(),
        );
        let script = script.replace("DISK", &disk.display().to_string());
        let mut command = tied::command("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", &script]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::default();
        keep(&mut child.stderr, &said, false);
        Self { child, client: Client::new(&format!("http://{http}")), said, _ports: ports }
    }

    async fn serves(&mut self) {
        until("it serves", async || {
            assert_eq!(self.child.try_wait().unwrap(), None, "it has ended: {}", self.said.lock());
            self.client.try_get(CONFIG_MAPS).await.is_ok_and(|answer| answer.status == 200)
        })
        .await;
    }

    async fn says(&self, words: &str) {
        eventually(words, || self.said.lock().contains(words)).await;
    }
}

async fn scene() -> (Server, tempfile::TempDir) {
    let server = Server::builder().object(crate::config_map("one")).start().await.unwrap();
    (server, tempfile::tempdir().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_reads_are_served() {
    let (server, directory) = scene().await;
    let mut daemon = Daemon::on(&server, directory.path(), FULL, "DISK/access.log", "");
    daemon.serves().await;
    daemon.says("cannot be written to stateDir").await;
    daemon.says("the log cannot be written").await;
    daemon.says("No space left on device").await;
    // Its disk, as it sees it.
    let filler = format!("/proc/{}/root{}/disk/filler", daemon.child.id().unwrap(), directory.path().display());
    std::fs::remove_file(filler).unwrap();
    daemon.serves().await;
    daemon.says("the log can be written again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_can_only_be_read_is_told_and_reads_are_served() {
    let (server, directory) = scene().await;
    let mount = "mount -t tmpfs tmpfs DISK && mount -o remount,ro tmpfs DISK";
    let access_log = directory.path().join("access.log");
    let mut daemon = Daemon::on(&server, directory.path(), mount, access_log.to_str().unwrap(), "");
    daemon.serves().await;
    daemon.says("cannot be written to stateDir").await;
    daemon.says("Read-only file system").await;
    // What is needed of the directory is in memory: HTTPS has its certificate.
    daemon.serves().await;
    server.faults().reset_connections();
    daemon.serves().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_says_may_be_lost_on_a_full_disk() {
    let (server, directory) = scene().await;
    let mut daemon = Daemon::on(&server, directory.path(), FULL, "DISK/access.log", "2> DISK/log");
    for _ in 0..3 {
        daemon.serves().await;
    }
    server.faults().reset_connections();
    daemon.serves().await;
    assert_eq!(daemon.child.try_wait().unwrap(), None);
}
