//! The clock of the day is set while the daemon runs: by a library that is loaded before all others and moves only that clock.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::access::certificates::Authority;
use crate::access::flood::Daemon;
use crate::access::world::fixtures;
use crate::cluster::Cluster;
use crate::support::client::{Client, Watch};
use crate::support::{eventually, tied, within};

const CONFIG_MAPS: &str = "/api/v1/namespaces/a/configmaps";
const DAY: i64 = 86_400;

/// The clock of a process.
struct Clock {
    library: PathBuf,
    /// By how many seconds it is moved.
    moved: PathBuf,
}

impl Clock {
    fn make(directory: &Path) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/clock.c");
        let library = directory.join("clock.so");
        let mut command = tied::blocking("cc");
        command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let what_to_do = "cc is missing, which compiles tests/data/clock.c (Debian: apt-get install gcc libc6-dev)";
        let made = command.output().unwrap_or_else(|error| panic!("{what_to_do}: {error}"));
        assert!(made.status.success(), "{what_to_do}: {}", String::from_utf8_lossy(&made.stderr));
        let clock = Self { library, moved: directory.join("moved") };
        clock.set(0);
        clock
    }

    fn set(&self, seconds: i64) {
        // In one step: nobody sees half of it.
        let next = self.moved.with_extension("next");
        std::fs::write(&next, seconds.to_string()).unwrap();
        std::fs::rename(next, &self.moved).unwrap();
    }
}

/// Seconds of processor time that a process has used.
fn processor(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
    // The kernel counts in hundredths, whatever its own tick is.
    ticks / 100.0
}

/// The watch tells that this object was made, and of nothing before it.
async fn tells(watch: &mut Watch, name: &str) {
    let event = within(name, watch.next_event()).await;
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&"ADDED".into(), &name.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_is_set_and_service_goes_on() {
    let cluster = Cluster::start().await;
    cluster.apply(&fixtures()).await;
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::make(directory.path());
    let authority = Authority::new("clients");
    let daemon = Daemon::start(&cluster, |command| {
        command.env("LD_PRELOAD", &clock.library).env("CLOCK_MOVED", &clock.moved);
        command.arg("--authentication-client-ca").arg(&authority.bundle);
        command.args(["--authentication-ttl", "2s"]);
    })
    .await;
    let token = cluster.token("a", "wide").await;
    let (certificate, key) = authority.issue("admin", &["system:masters"]);
    let ca = daemon.binary.ca();
    // Each is a connection of its own, whose handshake both sides judge by their clocks.
    let clients = || {
        [
            Client::new(&daemon.trusted),
            daemon.client(&token),
            Client::tls_certificate(&daemon.delegated, &ca, &certificate, &key, None),
        ]
    };
    let kept = clients();
    let list = format!("{CONFIG_MAPS}?resourceVersion=0");
    let mut watches = Vec::new();
    for client in &kept {
        let state = client.json(&list).await;
        let from = state["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        // Several streams rest on the token.
        for _ in 0..3 {
            watches.push(
                client.watch(&format!("{CONFIG_MAPS}?watch=1&allowWatchBookmarks=1&resourceVersion={from}")).await,
            );
        }
    }
    let relists = daemon.binary.metric("informerd_upstream_credential_reloads_total").await;

    let mut was = 0;
    for (turn, (moved, said)) in
        [(DAY, "the clock was set forward"), (0, "the clock was set back"), (-3600, "the clock was set back")]
            .into_iter()
            .enumerate()
    {
        let heard = daemon.binary.log().len();
        clock.set(moved);
        let (begun, used) = (Instant::now(), processor(daemon.binary.pid()));
        let reviews = daemon.binary.metric("informerd_auth_token_reviews_total").await;
        let name = format!("turn-{turn}");
        cluster.kubectl_ok(["create", "configmap", &name, "--namespace", "a"]).await;
        for watch in &mut watches {
            tells(watch, &name).await;
        }
        for client in kept.iter().chain(&clients()) {
            for consistent in [&list[..], CONFIG_MAPS] {
                let answer = client.get(consistent).await;
                assert_eq!(answer.status, 200, "{moved}: {}", answer.text());
                assert!(answer.text().contains(&name), "{moved}: nothing is lost");
            }
        }
        let line = || daemon.binary.log()[heard..].lines().find(|line| line.contains(said)).map(str::to_owned);
        eventually(said, || line().is_some()).await;
        let seconds = format!("\"seconds\":{}", i64::abs(moved - was));
        assert!(line().unwrap().contains(&seconds), "{:?}", line());
        // Nothing is asked or done in a circle.
        sleep(Duration::from_secs(3)).await;
        let passed = begun.elapsed().as_secs_f64();
        let (used, reviews) = (
            processor(daemon.binary.pid()) - used,
            daemon.binary.metric("informerd_auth_token_reviews_total").await - reviews,
        );
        eprintln!("{moved}: {used:.2} s of processor, {reviews} reviews in {passed:.1} s");
        assert!(used < passed / 2.0 + 1.0, "{moved}: {used} s of processor in {passed} s");
        assert!(reviews <= 2.0 * passed + 4.0, "{moved}: {reviews} reviews in {passed} s");
        was = moved;
    }
    assert_eq!(daemon.binary.metric("informerd_auth_streams_revoked_total").await, 0.0);
    assert_eq!(daemon.binary.metric("informerd_upstream_credential_reloads_total").await, relists);
    let log = daemon.binary.log();
    assert!(!log.contains("\"ERROR\"") && !log.contains("panicked"), "{log}");
}
