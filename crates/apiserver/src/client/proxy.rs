//! Connections through a proxy: by CONNECT or SOCKS 5 to a server with TLS, and by the target of each request to one
//! without TLS, as Go's `net/http` does.

use std::io;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::header::{HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use http::uri::Scheme;
use http::{Uri, uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tower::{ServiceExt as _, service_fn};

use super::io::{Io, Stream};
use crate::error::{BoxError, Cause};
use crate::kubeconfig::basic;

/// A proxy between us and the apiserver.
#[derive(Clone)]
pub(super) struct Proxy {
    kind: Kind,
    /// Without the user, and with its port.
    url: Uri,
    user: Option<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Https,
    Socks5,
}

/// Where a connection failed: its text says which proxy.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy}")]
struct Failed {
    proxy: Arc<str>,
    source: BoxError,
}

// === impl Proxy ===

impl Proxy {
    /// # Errors
    /// The URL is of another kind. The text has no password.
    pub(super) fn of(url: &Uri) -> Result<Self, String> {
        let (kind, scheme, port) = match url.scheme_str() {
            Some("http") | None => (Kind::Http, Scheme::HTTP, 80),
            Some("https") => (Kind::Https, Scheme::HTTPS, 443),
            // The proxy resolves names for both.
            Some("socks5" | "socks5h") => (Kind::Socks5, Scheme::HTTP, 1080),
            Some(other) => return Err(format!("the scheme {other} of the proxy may be http, https or socks5")),
        };
        let host = url.host().ok_or("the URL of the proxy has no host")?;
        let authority = format!("{host}:{}", url.port_u16().unwrap_or(port));
        let user = url.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        let user = user.map(|(user, _)| user.split_once(':').unwrap_or((user, "")));
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let url = uri::Builder::new().scheme(scheme).authority(authority).path_and_query("/").build();
        let url = url.map_err(|error| format!("the URL of the proxy: {error}"))?;
        Ok(Self { kind, url, user: user.map(|(name, password)| (decoded(name), decoded(password))) })
    }

    /// Whether it forwards requests to servers without TLS. One for SOCKS only connects.
    pub(super) fn forwards(&self) -> bool {
        self.kind != Kind::Socks5
    }

    /// Adds our credentials for the proxy to a request that it forwards.
    pub(super) fn authorize(&self, headers: &mut HeaderMap) {
        if let Some(value) = self.authorization() {
            headers.insert(PROXY_AUTHORIZATION, value);
        }
    }

    fn authorization(&self) -> Option<HeaderValue> {
        let (name, password) = self.user.as_ref()?;
        basic(name, password).ok()
    }

    /// Connects to a server, or for a server without TLS to the proxy that forwards. `tls`: that of the server, which is
    /// also for a proxy over TLS.
    pub(super) fn connect<'a>(
        &'a self,
        tcp: &'a HttpConnector,
        tls: Option<&'a TlsConnector>,
        server: &'a Uri,
    ) -> BoxFuture<'a, Result<Box<dyn Stream>, Cause>> {
        let (tcp, of_proxy) = (tcp.clone(), tls.cloned());
        let is_https = self.kind == Kind::Https;
        let to_proxy = service_fn(move |url: Uri| reach(url, tcp.clone(), is_https.then(|| of_proxy.clone())));
        let url = self.url.clone();
        let connected = async move {
            let connected: Result<Io, BoxError> = match (self.kind, tls) {
                (Kind::Socks5, _) => {
                    let mut socks = SocksV5::new(url, to_proxy);
                    if let Some((name, password)) = self.user.clone() {
                        socks = socks.with_auth(name, password);
                    }
                    socks.oneshot(with_port(server)).await.map_err(Into::into)
                }
                (_, Some(_)) => {
                    let tunnel = Tunnel::new(url, to_proxy);
                    let tunnel = match self.authorization() {
                        Some(value) => tunnel.with_auth(value),
                        None => tunnel,
                    };
                    tunnel.oneshot(server.clone()).await.map_err(Into::into)
                }
                (_, None) => to_proxy.oneshot(url).await.map_err(Into::into),
            };
            let proxy = self.url.authority().map_or("", uri::Authority::as_str);
            connected.map(TokioIo::into_inner).map_err(|source| Cause::new(Failed { proxy: proxy.into(), source }))
        };
        // Boxed, because the types of tunnels are deep.
        connected.boxed()
    }
}

/// Connects to the proxy itself, over TLS if `tls` is given.
async fn reach(url: Uri, tcp: HttpConnector, tls: Option<Option<TlsConnector>>) -> io::Result<Io> {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let tcp = tcp.oneshot(url).await.map_err(io::Error::other)?.into_inner();
    match tls {
        None => Ok(TokioIo::new(Box::new(tcp))),
        Some(None) => Err(io::Error::other("a proxy over https needs a server over https")),
        Some(Some(tls)) => {
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            // CONNECT is written in HTTP/1.1, so the proxy must not choose HTTP/2.
            let mut config = ClientConfig::clone(tls.config());
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            let tls = TlsConnector::from(Arc::new(config));
            Ok(TokioIo::new(Box::new(tls.connect(name, tcp).await?)))
        }
    }
}

/// The URL with its port, which a tunnel would otherwise take for 443.
fn with_port(server: &Uri) -> Uri {
    let port = if server.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    let authority = format!("{}:{}", server.host().unwrap_or_default(), server.port_u16().unwrap_or(port));
    let scheme = server.scheme().cloned().unwrap_or(Scheme::HTTP);
    let built = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build();
    built.unwrap_or_else(|_| server.clone())
}
