//! Connections: TCP with a limit on silence, TLS, and the negotiated protocol.

use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::{HeaderValue, Request, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tower::ServiceExt as _;

use super::endpoint::Endpoint;
use super::io::{Io, Stream};
use super::request_body::ReqBody;
use super::settings::UpstreamConfig;
use crate::error::{Cause, UpstreamError};
use crate::metrics::UpstreamMetrics;

/// Makes the connections of one identity.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    /// For sessions of users, because nothing restarts them automatically.
    patient_tcp: HttpConnector,
    tls: Option<Tls>,
    pub(super) endpoint: Endpoint,
    pub(super) config: UpstreamConfig,
    pub(super) metrics: Arc<UpstreamMetrics>,
}

#[derive(Clone)]
struct Tls {
    /// Offers h2 and http/1.1.
    any: TlsConnector,
    /// Offers http/1.1 only.
    http1: TlsConnector,
    server_name: ServerName<'static>,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// HTTP/2 if the server speaks it.
    Any,
    Http1,
    /// One session that lives longer than its request, over HTTP/1.1.
    Session,
}

/// The negotiated protocol.
pub(super) enum Protocol {
    Http2,
    Http1,
}

/// The TCP keepalive probes of an idle connection, and the longest time that sent bytes may stay unacknowledged. They
/// find a dead peer in 10 s if there is no HTTP/2 PING.
const KEEPALIVE: Duration = Duration::from_secs(4);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for sessions (`exec`, `port-forward`): they survive a network outage of this length.
const SESSION_KEEPALIVE: Duration = Duration::from_secs(30);
const SESSION_TIMEOUT: Duration = Duration::from_secs(45);

// === impl Connector ===

impl Connector {
    pub(super) fn new(
        endpoint: &Endpoint,
        tls: Option<ClientConfig>,
        config: &UpstreamConfig,
        metrics: &Arc<UpstreamMetrics>,
    ) -> Result<Self, UpstreamError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_recv_buffer_size(config.recv_buffer);
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        let mut patient_tcp = tcp.clone();
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
        patient_tcp.set_keepalive(Some(SESSION_KEEPALIVE));
        patient_tcp.set_tcp_user_timeout(Some(SESSION_TIMEOUT));
        Ok(Self {
            tcp,
            patient_tcp,
            tls: tls.map(|config| Tls::new(config, endpoint)).transpose()?,
            endpoint: endpoint.clone(),
            config: config.clone(),
            metrics: Arc::clone(metrics),
        })
    }

    /// Whether HTTP/2 may be offered: it requires ALPN.
    pub(super) fn offers_http2(&self) -> bool {
        self.tls.is_some()
    }

    /// Gives a request over HTTP/1.1 its target and its host. A proxy over HTTP before a server without TLS takes the
    /// requests themselves, so their target is the whole URL.
    pub(super) fn address(&self, request: &mut Request<ReqBody>) {
        if let Some(proxy) = self.endpoint.proxy.as_ref().filter(|proxy| self.tls.is_none() && proxy.forwards()) {
            proxy.authorize(request.headers_mut());
        } else if let Some(path) = request.uri().path_and_query() {
            let path = path.clone();
            *request.uri_mut() = Uri::from(path);
        }
        if let Ok(host) = HeaderValue::from_str(&self.endpoint.authority) {
            request.headers_mut().insert(HOST, host);
        }
    }

    /// Connects within the connect timeout.
    pub(super) async fn connect(&self, wanted: Wanted) -> Result<(Io, Protocol), UpstreamError> {
        let after = self.config.connect_timeout;
        let late = |_elapsed| Err(UpstreamError::Timeout { what: "connecting to the apiserver", after });
        let result = timeout(after, self.attempt(wanted)).await.unwrap_or_else(late);
        let counter = if result.is_ok() { &self.metrics.connects } else { &self.metrics.connect_errors };
        counter.inc();
        result
    }

    async fn attempt(&self, wanted: Wanted) -> Result<(Io, Protocol), UpstreamError> {
        let Endpoint { base, authority, proxy, .. } = &self.endpoint;
        let authority = || Arc::clone(authority);
        let tcp = if wanted == Wanted::Session { &self.patient_tcp } else { &self.tcp };
        let tcp = match proxy {
            Some(proxy) => proxy.connect(tcp, self.tls.as_ref().map(|tls| &tls.http1), base).await,
            None => {
                let tcp = tcp.clone().oneshot(base.clone()).await;
                tcp.map(|tcp| Box::new(tcp.into_inner()) as Box<dyn Stream>).map_err(Cause::new)
            }
        };
        let tcp = tcp.map_err(|cause| UpstreamError::Connect { authority: authority(), cause })?;
        let Some(tls) = &self.tls else {
            return Ok((TokioIo::new(tcp), Protocol::Http1));
        };
        let connector = if wanted == Wanted::Any { &tls.any } else { &tls.http1 };
        let stream = connector
            .connect(tls.server_name.clone(), tcp)
            .await
            .map_err(|error| UpstreamError::Tls { authority: authority(), cause: Cause::new(error) })?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
        Ok((TokioIo::new(Box::new(stream)), protocol))
    }
}

// === impl Tls ===

impl Tls {
    fn new(mut config: ClientConfig, endpoint: &Endpoint) -> Result<Self, UpstreamError> {
        let host = endpoint.base.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = endpoint.server_name.as_deref().unwrap_or(host).to_owned();
        let server_name = ServerName::try_from(name).map_err(|error| UpstreamError::Config(Cause::new(error)))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let any = TlsConnector::from(Arc::new(config));
        Ok(Self { any, http1, server_name })
    }
}
