//! One connection, HTTP/2 or HTTP/1.1, plain or TLS.

#![allow(dead_code, reason = "each load generator uses its own part of this")]

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::cluster::Cluster;

/// A server under load.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// `host:port`, or `unix:` and the path of a socket.
    pub(crate) address: String,
    /// The CA of an https target; `None` for plain HTTP/2.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) token: Option<String>,
    pub(crate) pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// Watches only, and of informerd.
    Grpc,
}

pub(crate) struct Connection {
    target: Target,
    send: Sender,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

// === impl Target ===

impl Target {
    /// The kube-apiserver of a cluster, as the user that may do everything.
    pub(crate) fn admin(cluster: &Cluster) -> Self {
        Self {
            address: cluster.info.server.trim_start_matches("https://").to_owned(),
            ca: Some(cluster.info.ca.clone()),
            token: Some("admin-token".into()),
            pid: cluster.apiserver_pid(),
        }
    }

    /// CPU seconds the server has used, user and system.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds(&self.pid.to_string())
    }

    /// MiB the server holds. Of informerd what is resident. What is resident of a Go program depends on its last
    /// collections, so of the kube-apiserver it is the heap and the stacks in use after one.
    pub(crate) async fn held_mib(&self) -> anyhow::Result<f64> {
        if self.token.is_none() {
            return self.resident_mib();
        }
        let mut connection = self.connect(Protocol::Http2).await?;
        connection.get_text("/debug/pprof/heap?gc=1&debug=1").await?;
        let metrics = connection.get_text("/metrics").await?;
        let bytes =
            metric(&metrics, "go_memstats_heap_inuse_bytes") + metric(&metrics, "go_memstats_stack_inuse_bytes");
        ensure!(bytes > 0.0, "the kube-apiserver does not tell its memory");
        Ok(bytes / 1024.0 / 1024.0)
    }

    fn authority(&self) -> &str {
        if self.address.starts_with("unix:") { "localhost" } else { &self.address }
    }

    fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no VmRSS")?.parse()?;
        Ok(kib / 1024.0)
    }

    pub(crate) async fn connect(&self, protocol: Protocol) -> anyhow::Result<Connection> {
        if let Some(path) = self.address.strip_prefix("unix:") {
            let unix = UnixStream::connect(path).await.with_context(|| format!("connecting to {path}"))?;
            return self.handshake(protocol, unix).await;
        }
        let tcp = TcpStream::connect(&self.address).await.with_context(|| format!("connecting to {}", self.address))?;
        tcp.set_nodelay(true)?;
        let Some(ca) = &self.ca else { return self.handshake(protocol, tcp).await };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca)? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![match protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 | Protocol::Grpc => b"h2".to_vec(),
        }];
        let name = ServerName::try_from("127.0.0.1")?;
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        self.handshake(protocol, tls).await
    }

    async fn handshake<S>(&self, protocol: Protocol, stream: S) -> anyhow::Result<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        let send = match protocol {
            Protocol::Http1 => {
                let (send, connection) = http1::handshake(stream).await?;
                informerd::lifecycle::spawn("load-connection", async move { drop(connection.await) });
                Sender::Http1(send)
            }
            Protocol::Http2 | Protocol::Grpc => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.timer(TokioTimer::new());
                builder.initial_stream_window_size(4 << 20).initial_connection_window_size(64 << 20);
                let (send, connection) = builder.handshake(stream).await?;
                informerd::lifecycle::spawn("load-connection", async move { drop(connection.await) });
                Sender::Http2(send)
            }
        };
        Ok(Connection { target: self.clone(), send })
    }
}

/// CPU seconds of a process: a number, or `self`.
pub(crate) fn cpu_seconds(process: &str) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The command's name may hold spaces; the fields count from behind its closing bracket.
    let fields: Vec<&str> = stat.rsplit_once(')').context("unexpected /proc/pid/stat")?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok());
    let (user, system) = ticks(11).zip(ticks(12)).context("unexpected /proc/pid/stat")?;
    Ok((user + system) / 100.0)
}

/// The sum over all series of a metric.
pub(crate) fn metric(text: &str, name: &str) -> f64 {
    let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
    text.lines().filter(of_it).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

// === impl Protocol ===

impl Protocol {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Grpc => "gRPC",
        }
    }
}

// === impl Connection ===

impl Connection {
    /// One more user of an HTTP/2 connection.
    pub(crate) fn share(&self) -> anyhow::Result<Self> {
        match &self.send {
            Sender::Http1(_) => bail!("an HTTP/1.1 connection has one user"),
            Sender::Http2(send) => Ok(Self { target: self.target.clone(), send: Sender::Http2(send.clone()) }),
        }
    }

    /// Fails unless the answer is a success.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> anyhow::Result<Response<Incoming>> {
        let response = self.request(method, path, headers, body).await?;
        if !response.status().is_success() {
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(response)
    }

    /// Whatever the answer is. `headers` take the place of those that the generator sends by itself.
    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> anyhow::Result<Response<Incoming>> {
        let scheme = if self.target.ca.is_some() { "https" } else { "http" };
        let uri = match self.send {
            Sender::Http1(_) => path.to_owned(),
            Sender::Http2(_) => format!("{scheme}://{}{path}", self.target.authority()),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header("accept", "application/json")
            .header("content-type", "application/json")
            .header("user-agent", "informerd-load");
        if matches!(self.send, Sender::Http1(_)) {
            request = request.header("host", self.target.authority());
        }
        if let Some(token) = &self.target.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let mut request = request.body(Full::new(body.into()))?;
        for (name, value) in headers {
            request.headers_mut().insert(HeaderName::from_str(name)?, HeaderValue::from_str(value)?);
        }
        self.dispatch(request).await
    }

    /// A call of gRPC with one message.
    pub(crate) async fn call(
        &mut self,
        path: &str,
        message: &impl prost::Message,
    ) -> anyhow::Result<Response<Incoming>> {
        let scheme = if self.target.ca.is_some() { "https" } else { "http" };
        let message = message.encode_to_vec();
        let body = [&[0][..], &u32::try_from(message.len())?.to_be_bytes(), &message].concat();
        let request = Request::post(format!("{scheme}://{}{path}", self.target.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(body.into()))?;
        let response = self.dispatch(request).await?;
        if let Some(status) = response.headers().get("grpc-status") {
            bail!("{path}: {status:?}: {:?}", response.headers().get("grpc-message"));
        }
        Ok(response)
    }

    async fn dispatch(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        Ok(match &mut self.send {
            Sender::Http1(send) => {
                send.ready().await?;
                send.send_request(request).await?
            }
            Sender::Http2(send) => {
                send.ready().await?;
                send.send_request(request).await?
            }
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Response<Incoming>> {
        self.send(Method::GET, path, &[], String::new()).await
    }

    /// As Go's client asks for everything.
    pub(crate) async fn get_gzip(&mut self, path: &str) -> anyhow::Result<Response<Incoming>> {
        self.send(Method::GET, path, &[("accept-encoding", "gzip")], String::new()).await
    }

    pub(crate) async fn get_text(&mut self, path: &str) -> anyhow::Result<String> {
        let body = self.get(path).await?.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(body.into())?)
    }
}
