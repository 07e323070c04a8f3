//! Servers as processes of their own.

#![allow(dead_code, reason = "each load generator uses its own part of this")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::process::{Child, Command};

use super::client::{Protocol, Target, metric};

/// How clients reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    Tls,
    Unix,
}

/// A server that answers.
pub(crate) struct Running {
    pub(crate) target: Target,
    /// Its metrics; other servers need not prove that they serve.
    admin: Option<Target>,
    _process: Option<Child>,
}

// === impl Transport ===

impl Transport {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "TLS",
            Self::Unix => "Unix socket",
        }
    }

    /// As in [`Target::address`].
    fn address(self, port: u16, directory: &Path) -> String {
        match self {
            Self::Plain | Self::Tls => format!("127.0.0.1:{port}"),
            Self::Unix => format!("unix:{}", directory.with_file_name(format!("{port}.sock")).display()),
        }
    }
}

// === impl Running ===

impl Running {
    pub(crate) fn apiserver(target: &Target) -> Self {
        Self { target: target.clone(), admin: None, _process: None }
    }

    /// A fresh informerd on free ports, before the kube-apiserver that `kubeconfig` names.
    pub(crate) fn informerd(
        binary: &Path,
        kubeconfig: &Path,
        state: &Path,
        transport: Transport,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        Self::informerd_at([free_port()?, free_port()?], binary, kubeconfig, state, transport, flags)
    }

    /// The same on these ports.
    pub(crate) fn informerd_at(
        [port, admin]: [u16; 2],
        binary: &Path,
        kubeconfig: &Path,
        state: &Path,
        transport: Transport,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let address = transport.address(port, state);
        let listen = match transport {
            Transport::Plain => format!("http://{address}"),
            Transport::Tls => format!("https://{address}"),
            Transport::Unix => address.replacen("unix:", "unix://", 1),
        };
        let daemon = Command::new(binary)
            .args(["run", "--kubeconfig"])
            .arg(kubeconfig)
            .args(["--listen", &listen])
            .args(["--admin", &format!("127.0.0.1:{admin}"), "--state-dir"])
            .arg(state)
            .args(flags)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("starting informerd")?;
        let pid = daemon.id().context("informerd has ended")?;
        let ca = (transport == Transport::Tls).then(|| state.join("ca.crt"));
        let target = Target { address, ca, token: None, pid };
        let admin = Target { address: format!("127.0.0.1:{admin}"), ca: None, token: None, pid };
        Ok(Self { target, admin: Some(admin), _process: Some(daemon) })
    }

    /// The bare broadcaster: this program again, between the kube-apiserver and its clients.
    pub(crate) fn broadcaster(apiserver: &Target, state: &Path, transport: Transport) -> anyhow::Result<Self> {
        let address = transport.address(free_port()?, state);
        let ca = apiserver.ca.as_deref().context("the kube-apiserver has a CA")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--broadcast", &address, "--broadcast-from", &apiserver.address, "--broadcast-ca"]).arg(ca);
        Self::peer(command, address)
    }

    /// `judge` runs kubectl.
    pub(crate) fn kubectl_proxy(judge: &Path, kubeconfig: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(judge);
        command.args(["kubectl", "proxy", "--port", &port.to_string(), "--kubeconfig"]).arg(kubeconfig);
        command.stdout(Stdio::null());
        Self::peer(command, format!("127.0.0.1:{port}"))
    }

    /// nginx with one worker, which answers the list of pods with this file. Its CPU is that of the worker.
    pub(crate) fn nginx(directory: &Path, list: &[u8]) -> anyhow::Result<Self> {
        let port = free_port()?;
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("pods.json"), list)?;
        let at = directory.display();
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log stderr crit; events {{}} http {{ access_log off; \
             sendfile on; tcp_nopush on; client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; \
             fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi; \
             server {{ listen 127.0.0.1:{port}; location = /api/v1/pods {{ default_type application/json; \
             alias {at}/pods.json; }} }} }}"
        );
        std::fs::write(directory.join("nginx.conf"), config)?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(directory).arg("-c").arg(directory.join("nginx.conf"));
        Self::peer(command, format!("127.0.0.1:{port}"))
    }

    fn peer(mut command: Command, address: String) -> anyhow::Result<Self> {
        let process = command.stdin(Stdio::null()).kill_on_drop(true).spawn().context("starting a peer")?;
        let pid = process.id().context("a peer has ended")?;
        Ok(Self { target: Target { address, ca: None, token: None, pid }, admin: None, _process: Some(process) })
    }

    /// What the admin side of informerd says; `None` for the kube-apiserver.
    pub(crate) async fn admin(&self, path: &str) -> anyhow::Result<Option<String>> {
        let Some(admin) = &self.admin else { return Ok(None) };
        Ok(Some(admin.connect(Protocol::Http1).await?.get_text(path).await?))
    }

    pub(crate) async fn wait_until_ready(&self) -> anyhow::Result<()> {
        for _ in 0..300 {
            if self.admin("/readyz").await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("informerd is not ready")
    }

    /// Until this read is answered, and not forwarded. A server that is not informerd only has to take connections.
    pub(crate) async fn wait_until_cached(&self, path: &str) -> anyhow::Result<()> {
        for _ in 0..300 {
            if self.admin.is_none() && self.target.connect(Protocol::Http1).await.is_ok() {
                return Ok(());
            }
            // The server takes connections before it serves its metrics.
            if let Ok(mut connection) = self.target.connect(Protocol::Http2).await
                && let Ok(before) = self.served().await
                && connection.get_text(path).await.is_ok()
                && self.check_served(before, 1).await.is_ok()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("{path} is not served")
    }

    /// Requests answered from a cache, and forwarded.
    pub(crate) async fn served(&self) -> anyhow::Result<(f64, f64)> {
        let Some(text) = self.admin("/metrics").await? else { return Ok((0.0, 0.0)) };
        let of = |name| metric(&text, name);
        Ok((of("informerd_http_requests_served_total"), of("informerd_http_requests_forwarded_total")))
    }

    /// How many reads were forwarded, by reason.
    pub(crate) async fn forwarded(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let text = self.admin("/metrics").await?.unwrap_or_default();
        let reads = text.lines().filter_map(|line| line.strip_prefix("informerd_reads_total{")?.split_once("} "));
        let forwarded = reads.filter_map(|(labels, count)| {
            let reason = labels.strip_prefix("plan=\"forward\",reason=\"")?.strip_suffix('"')?;
            Some((reason.to_owned(), count.parse().ok()?))
        });
        Ok(forwarded.filter(|(_, count)| *count > 0).collect())
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

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
