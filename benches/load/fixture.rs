//! The objects under load, and the servers as processes of their own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use http_body_util::BodyExt;
use tokio::process::{Child, Command};

use super::Options;
use super::client::{Connection, Protocol, Target, metric};
use super::cluster::Cluster;

pub(crate) struct Fixture {
    apiserver: Target,
    kubeconfig: PathBuf,
    state: PathBuf,
    writer: Connection,
}

/// What is measured.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    Apiserver,
    Informerd { name: &'static str, binary: PathBuf, tls: bool },
}

/// A server that answers.
pub(crate) struct Running {
    pub(crate) target: Target,
    /// Its metrics; the kube-apiserver needs not prove that it serves.
    admin: Option<Target>,
    _daemon: Option<Child>,
}

impl Fixture {
    pub(crate) async fn prepare(cluster: &Cluster, options: &Options) -> anyhow::Result<Self> {
        let apiserver = Target {
            address: cluster.info.server.trim_start_matches("https://").to_owned(),
            ca: Some(cluster.info.ca.clone()),
            token: Some("admin-token".into()),
            pid: cluster.info.apiserver_pid,
        };
        let mut writer = apiserver.connect(Protocol::Http2).await?;
        post(&mut writer, "/api/v1/namespaces", r#"{"metadata":{"name":"load"}}"#.into()).await?;
        post(&mut writer, "/api/v1/namespaces/load/configmaps", config_map(0)).await?;
        let other = r#"{"metadata":{"name":"other","namespace":"load"}}"#;
        post(&mut writer, "/api/v1/namespaces/load/secrets", other.into()).await?;
        let pods = if options.lists > 0 { options.pods } else { 0 };
        eprintln!("creating {pods} pods of {} bytes", options.pod_bytes);
        futures_util::stream::iter(0..pods)
            .map(|i| {
                let (writer, body) = (writer.share(), pod(i, options.pod_bytes));
                async move { post(&mut writer?, "/api/v1/namespaces/load/pods", body).await }
            })
            .buffer_unordered(32)
            .try_collect::<Vec<()>>()
            .await?;
        let state = cluster.dir().join("informerd-state");
        Ok(Self { apiserver, kubeconfig: cluster.admin().to_owned(), state, writer })
    }

    pub(crate) fn servers(&self, options: &Options) -> Vec<Server> {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_informerd"));
        let mut servers = if options.only_informerd { Vec::new() } else { vec![Server::Apiserver] };
        for (name, binary) in [("informerd", Some(built)), ("other", options.other.clone())] {
            let Some(binary) = binary else { continue };
            servers.extend([true, false].map(|tls| Server::Informerd { name, binary: binary.clone(), tls }));
        }
        servers
    }

    pub(crate) fn apiserver(&self) -> &Target {
        &self.apiserver
    }

    /// The kube-apiserver itself, and informerd in each mode of consistent lists. To be measured one after the other.
    pub(crate) fn modes(&self, options: &Options) -> anyhow::Result<Vec<(String, Running)>> {
        let mut modes = vec![("kube-apiserver".to_owned(), self.start(&Server::Apiserver)?)];
        let built = PathBuf::from(env!("CARGO_BIN_EXE_informerd"));
        for (name, binary) in [("informerd", Some(built)), ("other", options.other.clone())] {
            let Some(binary) = binary else { continue };
            for mode in ["upstream", "probe", "cache"] {
                let running = self.start_informerd(&binary, false, &["--consistent-reads-list", mode])?;
                modes.push((format!("{name}, `{mode}`"), running));
            }
        }
        Ok(modes)
    }

    /// A connection that writes directly to the kube-apiserver.
    pub(crate) fn writer(&mut self) -> &mut Connection {
        &mut self.writer
    }

    pub(crate) fn start(&self, server: &Server) -> anyhow::Result<Running> {
        match server {
            Server::Apiserver => Ok(Running { target: self.apiserver.clone(), admin: None, _daemon: None }),
            Server::Informerd { binary, tls, .. } => self.start_informerd(binary, *tls, &[]),
        }
    }

    fn start_informerd(&self, binary: &Path, tls: bool, flags: &[&str]) -> anyhow::Result<Running> {
        let (port, admin) = (free_port()?, free_port()?);
        let scheme = if tls { "https" } else { "http" };
        let daemon = Command::new(binary)
            .args(["run", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .args(["--listen", &format!("{scheme}://127.0.0.1:{port}")])
            .args(["--admin", &format!("127.0.0.1:{admin}"), "--state-dir"])
            .arg(&self.state)
            .args(flags)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting informerd")?;
        let pid = daemon.id().context("informerd has ended")?;
        let ca = tls.then(|| self.state.join("ca.crt"));
        let target = Target { address: format!("127.0.0.1:{port}"), ca, token: None, pid };
        let admin = Target { address: format!("127.0.0.1:{admin}"), ca: None, token: None, pid };
        Ok(Running { target, admin: Some(admin), _daemon: Some(daemon) })
    }
}

// === impl Server ===

impl Server {
    pub(crate) fn speaks(&self, protocol: Protocol) -> bool {
        protocol != Protocol::Grpc || matches!(self, Self::Informerd { .. })
    }

    pub(crate) fn row(&self, protocol: Protocol) -> String {
        match self {
            Self::Apiserver => format!("kube-apiserver, {}, TLS", protocol.as_str()),
            Self::Informerd { name, tls, .. } => {
                format!("{name}, {}, {}", protocol.as_str(), if *tls { "TLS" } else { "plain" })
            }
        }
    }
}

// === impl Running ===

impl Running {
    /// Until this read is answered, and not forwarded.
    pub(crate) async fn wait_until_cached(&self, path: &str) -> anyhow::Result<()> {
        for _ in 0..300 {
            if let Ok(mut connection) = self.target.connect(Protocol::Http2).await {
                let before = self.served().await?;
                if connection.get_text(path).await.is_ok() && self.check_served(before, 1).await.is_ok() {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("{path} is not served")
    }

    /// Requests answered from a cache, and forwarded.
    pub(crate) async fn served(&self) -> anyhow::Result<(f64, f64)> {
        let Some(admin) = &self.admin else { return Ok((0.0, 0.0)) };
        let text = admin.connect(Protocol::Http1).await?.get_text("/metrics").await?;
        let of = |name| metric(&text, name);
        Ok((of("informerd_http_requests_served_total"), of("informerd_http_requests_forwarded_total")))
    }

    /// That since `before` so many requests were answered from a cache, and none was forwarded.
    pub(crate) async fn check_served(&self, before: (f64, f64), requests: usize) -> anyhow::Result<()> {
        if self.admin.is_some() {
            let now = self.served().await?;
            ensure!(now == (before.0 + requests as f64, before.1), "served, forwarded: {before:?}, then {now:?}");
        }
        Ok(())
    }
}

async fn post(writer: &mut Connection, path: &str, body: String) -> anyhow::Result<()> {
    writer.send(Method::POST, path, &[], body).await?.into_body().collect().await?;
    Ok(())
}

fn pod(i: usize, bytes: usize) -> String {
    // What the server adds (defaults, status, managedFields) is about 1,700 bytes.
    let padding = padding(i, bytes.saturating_sub(1_700));
    format!(
        r#"{{"metadata":{{"name":"pod-{i:06}","labels":{{"app":"app-{}","tier":"backend"}},"annotations":{{"padding":"{padding}"}}}},"spec":{{"nodeName":"node-{}","containers":[{{"name":"main","image":"registry.example/app:{i}"}}]}}}}"#,
        i % 100,
        i % 50,
    )
}

/// Text that compresses about as well as what stands in real objects: words that all have, and names that no other has.
fn padding(seed: usize, bytes: usize) -> String {
    const WORDS: [&str; 16] = [
        "kubernetes.io/",
        "name:",
        "True,",
        "lastTransitionTime:",
        "containers/",
        "registry.example/",
        "default,",
        "node-",
        "2026-11-21T",
        "sha256:",
        "Running,",
        "cpu:100m,",
        "memory:128Mi,",
        "f:metadata.",
        "f:status.",
        "restartPolicy:",
    ];
    let mut state = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut text = String::with_capacity(bytes + 32);
    while text.len() < bytes {
        // xorshift: the same pods in every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state.is_multiple_of(4) {
            text.push_str(&format!("{:08x},", state >> 32));
        } else {
            text.push_str(WORDS[(state >> 8) as usize % WORDS.len()]);
        }
    }
    text.truncate(bytes);
    text
}

/// A config map of about 2 kB that carries the moment of its writing.
pub(crate) fn config_map(sent_nanos: u128) -> String {
    format!(
        r#"{{"metadata":{{"name":"load","namespace":"load"}},"data":{{"padding":"{}","sent":"{sent_nanos}"}}}}"#,
        "x".repeat(1_600)
    )
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
