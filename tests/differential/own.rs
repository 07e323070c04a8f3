//! A cluster and a daemon of our own, with a network between them that can be cut.

use tokio::sync::OnceCell;

use informerd::apiserver::client::ConfigSource;
use informerd::config::Config;

use super::args::Mode;
use super::cluster::{Cluster, Server, kubeconfig};
use super::process;
use super::support::relay::{Loss, Relay};
use super::support::{Through, file};
use super::wire::Endpoint;

/// Nothing of the server's own may be written while answers are compared: not its leases, not its endpoints, not the
/// key that tells of compactions.
const STILL: &[&str] =
    &["--apiserver-flag=endpoint-reconciler-type=none", "--apiserver-flag=etcd-compaction-interval=0"];
const GATES: &str = "--apiserver-flag=feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false";
/// The first one trusts everybody, the second one asks who they are.
const LISTEN: &str = "listen: ['http://127.0.0.1:0', 'delegated+https://127.0.0.1:0']\n\
                      authentication: {anonymous: forward}\n";

pub(crate) struct Own {
    pub cluster: Cluster,
    pub daemon: Through,
    pub mode: Mode,
    /// Between the daemon and its apiserver.
    pub relay: Relay,
    another: OnceCell<Server>,
}

// === impl Own ===

impl Own {
    pub(crate) async fn start(mode: Mode) -> Self {
        // In one of the modes shard selectors are evaluated, in the other they are ignored, as they are by default.
        let mut gates = GATES.to_owned();
        match process::minor_version().await {
            36.. => gates.push_str(&format!(",ShardedListAndWatch={}", mode == Mode::Probe)),
            31.. => {}
            // Without it the cache of a resource that does not change reaches no newer revision, and the world never settles.
            ..31 => gates.push_str(",ConsistentListFromCache=true"),
        }
        let cluster = Cluster::start_with(&[STILL, &[gates.as_str()]].concat()).await;
        // Nothing the server starts from is the beginning of all things: there is a past that is too old.
        cluster.namespace("diff-before").await;
        cluster.compact().await;
        cluster.restart_apiserver().await;
        let relay = Relay::before(address(&cluster.info.server)).await;
        let url = format!("https://{}", relay.address);
        let path = file(cluster.dir(), "relayed.kubeconfig", kubeconfig(&url, &cluster.info.ca, "admin-token"));
        // Where objects are packed, no read keeps one from that.
        let change = |config: &mut Config| config.memory.hot_bytes = 0;
        let source = ConfigSource::kubeconfig(&path);
        let daemon = Through::changed(source, &format!("{LISTEN}{}", mode.yaml()), change).await;
        daemon.ready().await;
        Self { cluster, daemon, mode, relay, another: OnceCell::new() }
    }

    /// The apiserver and the daemon, which both let everything be done.
    pub(crate) fn pair(&self) -> [Endpoint; 2] {
        let through = Endpoint::new(&self.daemon.url, None, None, None);
        [self.direct(Some("admin-token")), through.expect("its URL")]
    }

    fn direct(&self, token: Option<&str>) -> Endpoint {
        let info = &self.cluster.info;
        Endpoint::new(&info.server, Some(&info.ca), token, None).expect("the cluster's URL")
    }

    /// The apiserver and the daemon, or what is tried in its place, as the bearer of this token sees them.
    pub(crate) fn pair_of(&self, token: Option<&str>, instead: Option<&str>) -> [Endpoint; 2] {
        if let Some(url) = instead {
            return [self.direct(token), Endpoint::new(url, None, token, None).expect("its URL")];
        }
        let through = Endpoint::new(&self.daemon.listener(1), Some(&self.daemon.ca()), token, None);
        [self.direct(token), through.expect("its URL")]
    }

    /// Leads the daemon, whose connections are cut, to another apiserver of the cluster. The cache of that one has begun
    /// after the cut the first time, so that nothing of the daemon's can resume there.
    pub(crate) async fn change_apiserver(&self) {
        let fresh = self.another.get().is_none();
        let server = self.another.get_or_init(|| self.cluster.second_apiserver()).await;
        if !fresh {
            self.cluster.command::<Server>(&format!("restart-apiserver {}", server.index)).await;
        }
        self.relay.lead(address(&server.server));
        self.relay.lose(Loss::None);
    }
}

fn address(url: &str) -> std::net::SocketAddr {
    url.trim_start_matches("https://").parse().expect("an address")
}
