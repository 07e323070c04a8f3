//! How soon the first event comes once a fault is over: through a network that loses bytes, and with credentials that are
//! wrong for a while.
//!
//! The faults last as long as `INFORMERD_FAULT_SECONDS` says: 20 s show more than the few that a test may take.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::daemon::fixtures::config_map;
use crate::support::client::Client;
use crate::support::informer::Informer;
use crate::support::relay::{Loss, Relay};
use crate::support::{Through, eventually};
use crate::world::admin;
use http::Method;
use informerd::apiserver::client::ConfigSource;
use tokio::time::{Instant, sleep};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What is read besides, so that more than one reflector has to recover.
const OTHERS: [&str; 4] = ["/api/v1/pods", "/api/v1/services", "/api/v1/secrets", "/apis/apps/v1/deployments"];

/// Every fault is over after so many changes, 50 ms apart or, where the machine is busy, more.
const SOON: u64 = 1200;

fn seconds(usual: u64) -> Duration {
    let asked = std::env::var("INFORMERD_FAULT_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(usual))
}

/// An informer's connection to a daemon before an apiserver, and a way past both.
struct Scene {
    through: Through,
    informer: Informer,
    others: Vec<Informer>,
}

impl Scene {
    async fn before(source: ConfigSource) -> Self {
        let through = Through::start(source, "").await;
        through.ready().await;
        let client = Client::new(&through.url);
        let informer = Informer::start(client.clone(), CONFIG_MAPS, "");
        let others: Vec<_> = OTHERS.iter().map(|path| Informer::start(client.clone(), path, "")).collect();
        for informer in others.iter().chain([&informer]) {
            eventually("synced", || informer.seen().last > 0).await;
        }
        Self { through, informer, others }
    }

    /// Makes changes until the first event comes.
    async fn recovers(&self, what: &str, change: impl AsyncFn(u64)) {
        let before = self.informer.seen().events;
        let mut changes = 0;
        while self.informer.seen().events <= before {
            assert!(changes < SOON, "{what}: nothing came after {changes} changes");
            change(changes).await;
            changes += 1;
            sleep(Duration::from_millis(50)).await;
        }
        for informer in self.others.iter().chain([&self.informer]) {
            informer.assert_content();
        }
    }
}

/// A real apiserver behind a relay.
pub(crate) struct Real {
    pub cluster: Arc<Cluster>,
    pub relay: Relay,
    pub direct: Client,
    pub kubeconfig: PathBuf,
}

impl Real {
    pub(crate) async fn start() -> Self {
        Self::before(Arc::new(Cluster::start().await)).await
    }

    async fn before(cluster: Arc<Cluster>) -> Self {
        let relay = Relay::before(cluster.info.server.trim_start_matches("https://").parse().unwrap()).await;
        let direct = admin(&cluster);
        let kubeconfig = cluster.dir().join(format!("relayed-{}.kubeconfig", relay.address.port()));
        let real = Self { cluster, relay, direct, kubeconfig };
        real.write(real.cluster.admin());
        real.change(0).await;
        real
    }

    /// The credentials of a kubeconfig, for the relay.
    fn write(&self, from: &Path) {
        let text = std::fs::read_to_string(from).unwrap();
        let address = format!("https://{}", self.relay.address);
        let text = text.replace(&self.cluster.info.server, &address);
        assert!(text.contains(&address), "{text}");
        std::fs::write(&self.kubeconfig, text).unwrap();
    }

    pub(crate) async fn change(&self, n: u64) {
        let mut object = config_map("default", "moving");
        object["data"]["n"] = format!("{n} {:?}", Instant::now()).into();
        let path = format!("{CONFIG_MAPS}/moving?fieldManager=test&force=true");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let answer = self.direct.send(Method::PATCH, &path, &headers, object.to_string()).await;
        assert!(answer.status().is_success(), "{answer:?}");
    }
}

async fn lost(cluster: &Arc<Cluster>, what: &str, losses: Vec<(Loss, Duration)>) {
    let real = Real::before(Arc::clone(cluster)).await;
    let scene = Scene::before(ConfigSource::kubeconfig(&real.kubeconfig)).await;
    for (loss, time) in losses {
        real.relay.lose(loss);
        sleep(time).await;
    }
    real.relay.lose(Loss::None);
    scene.recovers(what, async |n| real.change(n).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_loses_bytes_or_comes_and_goes() {
    let cluster = Arc::new(Cluster::start().await);
    // About as long as it takes to notice it.
    let long = seconds(10);
    let phases = [(Loss::Closed, long / 5), (Loss::None, long / 10)].repeat(3);
    tokio::join!(
        lost(&cluster, "black hole", vec![(Loss::Both, long)]),
        lost(&cluster, "one way up", vec![(Loss::Up, long)]),
        lost(&cluster, "half a handshake", vec![(Loss::Late, long)]),
        lost(&cluster, "one way down", vec![(Loss::Down, long)]),
        lost(&cluster, "slow flapping", phases[..5].to_vec()),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_were_wrong_for_a_while() {
    let cluster = Arc::new(Cluster::start().await);
    tokio::join!(wrong(&cluster, "nobody-token"), wrong(&cluster, "no-such-token"));
}

async fn wrong(cluster: &Arc<Cluster>, token: &str) {
    let real = Real::before(Arc::clone(cluster)).await;
    let scene = Scene::before(ConfigSource::kubeconfig(&real.kubeconfig)).await;
    real.write(&cluster.info.kubeconfigs.nobody);
    let text = std::fs::read_to_string(&real.kubeconfig).unwrap().replace("nobody-token", token);
    std::fs::write(&real.kubeconfig, text).unwrap();
    // Noticed within a second.
    sleep(Duration::from_millis(1500)).await;
    real.relay.lose(Loss::Closed);
    sleep(Duration::from_millis(300)).await;
    real.relay.lose(Loss::None);
    sleep(seconds(4)).await;
    let fails = || scene.through.daemon.factory.informers().iter().all(|one| one.status().failing.is_some());
    eventually("all fail", fails).await;
    real.write(cluster.admin());
    scene.recovers(token, async |n| real.change(n).await).await;
}
