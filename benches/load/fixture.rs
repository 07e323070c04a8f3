//! The objects under load, and which servers are measured.

use std::ops::Range;
use std::path::PathBuf;

use futures_util::{StreamExt, TryStreamExt};
use http::Method;
use http_body_util::BodyExt;

use super::Options;
use super::client::{Connection, Protocol, Target};
use super::cluster::Cluster;
use super::padding::padding;
use super::process;
use super::server::{Running, Transport};

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
    /// The least that a fan-out can be.
    Broadcaster(Transport),
    KubectlProxy,
    /// The least that a list can be: a file.
    Nginx,
    Informerd {
        name: &'static str,
        binary: PathBuf,
        transport: Transport,
        flags: &'static [&'static str],
    },
}

const PODS: &str = "/api/v1/namespaces/load/pods";
/// The object that is watched.
pub(crate) const MAP: &str = "/api/v1/namespaces/load/configmaps/load";
/// One like it that nobody watches.
pub(crate) const UNWATCHED: &str = "/api/v1/namespaces/unwatched/configmaps/load";

impl Fixture {
    pub(crate) async fn prepare(cluster: &Cluster) -> anyhow::Result<Self> {
        let apiserver = Target::admin(cluster);
        let mut writer = apiserver.connect(Protocol::Http2).await?;
        for namespace in ["load", "unwatched"] {
            let body = format!(r#"{{"metadata":{{"name":"{namespace}"}}}}"#);
            post(&mut writer, "/api/v1/namespaces", body).await?;
            post(&mut writer, &format!("/api/v1/namespaces/{namespace}/configmaps"), config_map(0)).await?;
        }
        let other = r#"{"metadata":{"name":"other","namespace":"load"}}"#;
        post(&mut writer, "/api/v1/namespaces/load/secrets", other.into()).await?;
        let state = cluster.dir().join("informerd-state");
        Ok(Self { apiserver, kubeconfig: cluster.admin().to_owned(), state, writer })
    }

    /// Creates the pods with these numbers, of so many bytes each.
    pub(crate) async fn create_pods(&self, numbers: Range<usize>, bytes: usize) -> anyhow::Result<()> {
        eprintln!("creating {} pods of {bytes} bytes", numbers.len());
        futures_util::stream::iter(numbers)
            .map(|i| {
                let (writer, body) = (self.writer.share(), pod(i, bytes));
                async move { post(&mut writer?, PODS, body).await }
            })
            .buffer_unordered(32)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    pub(crate) fn servers(&self, options: &Options) -> Vec<Server> {
        let mut servers = if options.only_informerd { Vec::new() } else { vec![Server::Apiserver] };
        for (name, binary) in [("informerd", Some(options.informerd())), ("other", options.other.clone())] {
            let Some(binary) = binary else { continue };
            let transports = [Transport::Tls, Transport::Plain, Transport::Unix];
            servers.extend(transports.map(|transport| Server::Informerd {
                name,
                binary: binary.clone(),
                transport,
                flags: &[],
            }));
        }
        if !options.only_informerd {
            servers.extend([Transport::Plain, Transport::Unix].map(Server::Broadcaster));
            servers.push(Server::KubectlProxy);
            if std::process::Command::new("nginx").arg("-v").stderr(std::process::Stdio::null()).status().is_ok() {
                servers.push(Server::Nginx);
            } else {
                eprintln!("nginx is not installed and is left out");
            }
        }
        servers
    }

    pub(crate) fn apiserver(&self) -> &Target {
        &self.apiserver
    }

    /// The kube-apiserver itself, and informerd in each mode of consistent lists. To be measured one after the other.
    pub(crate) fn modes(&self, options: &Options) -> anyhow::Result<Vec<(String, Running)>> {
        let mut modes = vec![("kube-apiserver".to_owned(), Running::apiserver(&self.apiserver))];
        for (name, binary) in [("informerd", Some(options.informerd())), ("other", options.other.clone())] {
            let Some(binary) = binary else { continue };
            for mode in ["upstream", "probe", "cache"] {
                let running = Running::informerd(
                    &binary,
                    &self.kubeconfig,
                    &self.state,
                    Transport::Plain,
                    &["--consistent-reads", mode],
                )?;
                modes.push((format!("{name}, `{mode}`"), running));
            }
        }
        Ok(modes)
    }

    /// A connection that writes directly to the kube-apiserver.
    pub(crate) fn writer(&mut self) -> &mut Connection {
        &mut self.writer
    }

    pub(crate) async fn start(&self, server: &Server) -> anyhow::Result<Running> {
        match server {
            Server::Apiserver => Ok(Running::apiserver(&self.apiserver)),
            Server::Broadcaster(transport) => Running::broadcaster(&self.apiserver, &self.state, *transport),
            Server::KubectlProxy => Running::kubectl_proxy(process::judge().await, &self.kubeconfig),
            Server::Nginx => {
                let mut connection = self.apiserver.connect(Protocol::Http2).await?;
                let list = connection.get_text("/api/v1/pods?resourceVersion=0").await?;
                Running::nginx(&self.state.with_file_name("nginx"), list.as_bytes())
            }
            Server::Informerd { binary, transport, flags, .. } => {
                Running::informerd(binary, &self.kubeconfig, &self.state, *transport, flags)
            }
        }
    }
}

// === impl Server ===

impl Server {
    /// Whether its lists are measured over this protocol.
    pub(crate) fn lists(&self, protocol: Protocol, gzip: bool) -> bool {
        match self {
            Self::Apiserver => true,
            Self::Broadcaster(_) => false,
            Self::KubectlProxy => protocol == Protocol::Http1,
            Self::Nginx => protocol == Protocol::Http1 && !gzip,
            Self::Informerd { transport, .. } => *transport != Transport::Unix,
        }
    }

    /// Whether its fan-out is measured over this protocol.
    pub(crate) fn speaks(&self, protocol: Protocol) -> bool {
        match self {
            Self::Apiserver => protocol != Protocol::Grpc,
            Self::Broadcaster(_) | Self::KubectlProxy => protocol == Protocol::Http1,
            Self::Nginx => false,
            Self::Informerd { transport, .. } => protocol == Protocol::Http1 || *transport != Transport::Unix,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Apiserver => "kube-apiserver",
            Self::KubectlProxy => "kubectl proxy",
            Self::Nginx => "nginx",
            Self::Broadcaster(_) => "broadcaster",
            Self::Informerd { name, .. } => name,
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Apiserver => Transport::Tls,
            Self::KubectlProxy | Self::Nginx => Transport::Plain,
            Self::Broadcaster(transport) | Self::Informerd { transport, .. } => *transport,
        }
    }

    /// How it is reached.
    pub(crate) fn way(&self, protocol: Protocol) -> String {
        format!("{}, {}", protocol.as_str(), self.transport().as_str())
    }

    pub(crate) fn row(&self, protocol: Protocol) -> String {
        format!("{}, {}", self.name(), self.way(protocol))
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

/// A config map of about 2 kB that carries the moment of its writing.
pub(crate) fn config_map(sent_nanos: u128) -> String {
    format!(r#"{{"metadata":{{"name":"load"}},"data":{{"padding":"{}","sent":"{sent_nanos}"}}}}"#, "x".repeat(1_600))
}
