//! The whole daemon in this process, and raw clients that look closely at what it sends.

#![allow(dead_code, reason = "every test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub(crate) mod binary;
pub(crate) mod client;
pub(crate) mod grpc;
pub(crate) mod history;
pub(crate) mod informer;
pub(crate) mod life;
pub(crate) mod limited;
pub(crate) mod lines;
pub(crate) mod metrics;
pub(crate) mod patience;
pub(crate) mod ports;
pub(crate) mod proto;
pub(crate) mod relay;
pub(crate) mod serve;
pub(crate) mod tied;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use informerd::apiserver::client::ConfigSource;
use informerd::app::daemon::Daemon;
use informerd::app::process::Context;
use informerd::config::{self, Config, Flags, Source};
use informerd::http::ListenAddr;
use informerd::lifecycle::drain::{Drain, DrainEnd};
use informerd_sim as sim;

use client::Client;
#[allow(unused_imports, reason = "every test binary uses its own part")]
pub(crate) use patience::{eventually, until, within};

/// A daemon on free ports in front of a server.
pub(crate) struct Through {
    pub daemon: Daemon,
    /// `http://127.0.0.1:port` of its first listener.
    pub url: String,
    pub context: Context,
    drain: Drain,
    _state: tempfile::TempDir,
}

/// A world with one configuration file and one variable in the environment, `NODE_NAME`.
struct OneFile(String);

/// What `$(NODE_NAME)` stands for in a configuration.
pub(crate) const NODE_NAME: &str = "node-1";

impl Source for OneFile {
    fn variable(&self, name: &str) -> Result<Option<String>, String> {
        Ok((name == "NODE_NAME").then(|| NODE_NAME.to_owned()))
    }

    fn variable_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        if path == Path::new("/informerd.yaml") { Ok(self.0.clone()) } else { std::fs::read_to_string(path) }
    }
}

impl Through {
    /// In front of whatever `source` names; `yaml` is what its configuration file says besides the ports.
    pub(crate) async fn start(source: ConfigSource, yaml: &str) -> Self {
        Self::changed(source, yaml, |_| {}).await
    }

    /// With something that is no setting, such as a bound that a test cannot reach, or a time that it cannot wait for.
    pub(crate) async fn changed(source: ConfigSource, yaml: &str, change: fn(&mut Config)) -> Self {
        patience::bounded();
        let state = tempfile::tempdir().unwrap();
        let listen = if yaml.contains("listen:") { "" } else { "listen: [\"http://127.0.0.1:0\"]\n" };
        let lend = if yaml.contains("lendIdentity:") { "" } else { "lendIdentity: all\n" };
        let file = format!("{listen}{lend}admin: 127.0.0.1:0\nstateDir: {}\n{yaml}", state.path().display());
        let flags: Flags = BTreeMap::from([("config", vec!["/informerd.yaml".to_owned()])]);
        let loaded = config::load(&flags, &OneFile(file)).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let mut config = loaded.config;
        change(&mut config);
        let (context, drain) = Context::new();
        let daemon = Daemon::start(&config, source, &context).await.unwrap();
        let url = url(&daemon.listen[0]);
        Self { daemon, url, context, drain, _state: state }
    }

    /// As the user of a kubeconfig.
    pub(crate) async fn of(kubeconfig: &Path, yaml: &str) -> Self {
        Self::start(ConfigSource::kubeconfig(kubeconfig), yaml).await
    }

    pub(crate) async fn before(server: &sim::Server, yaml: &str) -> Self {
        Self::start(unauthenticated(&server.url()), yaml).await
    }

    /// Before a simulated apiserver that has these objects; with a client.
    pub(crate) async fn simulated(
        objects: impl IntoIterator<Item = serde_json::Value>,
        yaml: &str,
    ) -> (sim::Server, Self, client::Client) {
        Self::simulated_with(objects, yaml, |_| {}).await
    }

    /// With something that is no setting.
    pub(crate) async fn simulated_with(
        objects: impl IntoIterator<Item = serde_json::Value>,
        yaml: &str,
        change: fn(&mut Config),
    ) -> (sim::Server, Self, client::Client) {
        let server = objects.into_iter().fold(sim::Server::builder(), sim::Builder::object).start().await.unwrap();
        let through = Self::changed(unauthenticated(&server.url()), yaml, change).await;
        let client = Client::new(&through.url);
        (server, through, client)
    }

    /// The URL of another listener than the first one.
    pub(crate) fn listener(&self, index: usize) -> String {
        url(&self.daemon.listen[index])
    }

    /// The CA of its listeners.
    pub(crate) fn ca(&self) -> PathBuf {
        self.daemon.ca_file.clone().expect("a listener with TLS")
    }

    /// Who has this token, at a listener with TLS.
    pub(crate) fn bearer(&self, index: usize, token: &str) -> Client {
        Client::tls(&self.listener(index), &self.ca(), token)
    }

    /// A client of its admin side.
    pub(crate) fn admin(&self) -> Client {
        Client::new(&format!("http://{}", self.daemon.admin))
    }

    pub(crate) async fn ready(&self) {
        eventually("the daemon is ready", || self.context.readiness.is_ready()).await;
    }

    /// Drains with this soft deadline.
    pub(crate) async fn stop(&self, soft: Duration) -> DrainEnd {
        self.drain.start(soft);
        within("the daemon is drained", self.drain.completed()).await
    }
}

fn url(listen: &ListenAddr) -> String {
    match listen {
        ListenAddr::Https(address) | ListenAddr::Delegated(address) => format!("https://{address}"),
        ListenAddr::Http(address) => format!("http://{address}"),
        ListenAddr::Unix(path) => format!("unix://{}", path.display()),
    }
}

/// A server that asks nobody who they are.
pub(crate) fn unauthenticated(url: &str) -> ConfigSource {
    ConfigSource::Fixed(Box::new(kube::Config::new(url.parse().unwrap())))
}

/// Writes a file, and returns where it is.
pub(crate) fn file(directory: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(whole).unwrap_or_else(|error| panic!("{path}: {error}"))
}
