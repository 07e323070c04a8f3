//! The same requests over HTTP/2: prior knowledge on plain listeners, ALPN over TLS. What is compared of an answer is what
//! HTTP/2 has: no reason phrase, and of the framing only whether a length was told.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, Version};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, timeout_at};

use super::wire::{Answer, Ask, End, Framing};

/// Headers of one connection, which HTTP/2 has not.
const OF_CONNECTIONS: [&str; 6] = ["connection", "host", "keep-alive", "te", "transfer-encoding", "upgrade"];

/// One server, by one connection.
pub(crate) struct Http2 {
    url: String,
    token: Option<String>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Whether a request can be said in HTTP/2 as it stands.
pub(crate) fn can_say(ask: &Ask) -> bool {
    // Templates stand for what a target may hold.
    let target = ask.target.replace(['{', '}'], "");
    target.starts_with('/')
        && target.parse::<Uri>().is_ok_and(|uri| uri.to_string() == target)
        && !OF_CONNECTIONS.iter().any(|name| ask.has(name))
}

// === impl Http2 ===

impl Http2 {
    pub(crate) fn new(url: &str, tls: rustls::ClientConfig, token: Option<&str>) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http2().build();
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build(connector);
        Self { url: url.to_owned(), token: token.map(str::to_owned), client }
    }

    /// Sends a request and reads its whole answer; what is not there when `bound` is over is not waited for. A stream
    /// that is reset before its answer is [`io::ErrorKind::UnexpectedEof`], as a connection that is closed.
    pub(crate) async fn ask(&self, ask: &Ask, bound: Duration) -> io::Result<Answer> {
        let deadline = Instant::now() + bound;
        let request = self.request(ask).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let response = match timeout_at(deadline, self.client.request(request)).await {
            Err(_) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer at all")),
            Ok(Err(error)) if error.is_connect() => return Err(io::Error::other(error)),
            Ok(Err(error)) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)),
            Ok(Ok(response)) => response,
        };
        let (head, mut rest) = response.into_parts();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let told = head.headers.get("content-length").and_then(|length| length.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        let end = loop {
            match timeout_at(deadline, rest.frame()).await {
                Err(_) => break End::Open,
                Ok(None) => break End::Clean,
                Ok(Some(Err(_))) => break End::Cut,
                Ok(Some(Ok(frame))) => body.extend_from_slice(frame.data_ref().map_or(&b""[..], |data| data)),
            }
        };
        let framing = told.map_or(Framing::Chunked, Framing::Length);
        Ok(Answer { status: head.status.as_u16(), reason: String::new(), headers, framing, body, end })
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, http::Error> {
        let method = Method::from_bytes(ask.method.as_bytes())?;
        let uri = format!("{}{}", self.url, ask.target);
        let mut request = Request::builder().version(Version::HTTP_2).method(method).uri(uri);
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        if let Some(token) = self.token.as_ref().filter(|_| !ask.has("authorization")) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !ask.has("user-agent") {
            request = request.header("user-agent", "differential");
        }
        request.body(Full::new(Bytes::from(ask.body.clone().unwrap_or_default())))
    }
}
