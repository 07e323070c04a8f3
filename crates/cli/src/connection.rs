//! One HTTP/2 connection to the daemon, for gRPC and for the discovery documents.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use informerd_api::v1::cache_client::CacheClient;
use informerd_api::v1::objects_client::ObjectsClient;
use informerd_lifecycle::spawn;
use informerd_lifecycle::tied::Tied;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tonic::body::Body;
use tower::Service;

use super::address::Address;
use super::peer::Peer;
use super::server::Target;

type BoxError = Box<dyn Error + Send + Sync>;

/// A message exceeds its limit of 1 MiB by at most one object, so this leaves room for the largest object of the
/// apiserver.
const LARGEST_MESSAGE: usize = 64 << 20;
const CONNECT: Duration = Duration::from_secs(5);
/// A daemon that answers no ping for this long counts as gone.
const SILENCE: Duration = Duration::from_secs(20);
/// An object may be larger than the default window of a stream.
const WINDOW: u32 = 4 << 20;

/// An open connection. It is closed when it is dropped.
#[derive(Clone)]
pub struct Connection {
    sender: Tied<SendRequest<Body>>,
    origin: Uri,
    /// Headers with the client's name and credentials.
    headers: HeaderMap,
    pub(super) peer: Arc<Peer>,
}

// === impl Connection ===

impl Connection {
    /// Connects within 5 s.
    ///
    /// # Errors
    /// Nobody answers at the address, or the handshake of TLS or HTTP/2 failed.
    pub async fn open(target: &Target) -> io::Result<Self> {
        let opening = async {
            let headers = target.headers().await?;
            let peer = Peer::new(target.address.clone());
            match &target.address {
                Address::Http(authority) | Address::Https(authority) => {
                    let stream = TcpStream::connect(authority).await?;
                    stream.set_nodelay(true)?;
                    let Some((tls, name)) = &target.tls else {
                        return Self::handshake(stream, "http", authority, headers, peer).await;
                    };
                    let stream = tls.connect(name.clone(), stream).await?;
                    Self::handshake(stream, "https", authority, headers, peer).await
                }
                Address::Unix(path) => {
                    Self::handshake(UnixStream::connect(path).await?, "http", "localhost", headers, peer).await
                }
            }
        };
        timeout(CONNECT, opening).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn handshake<S>(
        stream: S,
        scheme: &str,
        authority: &str,
        headers: HeaderMap,
        peer: Arc<Peer>,
    ) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(SILENCE)
            .keep_alive_timeout(SILENCE)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let stream = TokioIo::new(peer.note(stream));
        let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        let (sender, knot) = Tied::new(sender);
        spawn("connection", async move {
            // The calls on the connection report the error.
            connection.await.ok();
            drop(knot);
        });
        let origin = Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build();
        Ok(Self { sender, origin: origin.map_err(io::Error::other)?, headers, peer })
    }

    /// Scheme and authority, for clients of other services on this connection.
    pub fn origin(&self) -> &Uri {
        &self.origin
    }

    pub fn objects(&self) -> ObjectsClient<Self> {
        ObjectsClient::with_origin(self.clone(), self.origin.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(super) fn cache(&self) -> CacheClient<Self> {
        CacheClient::with_origin(self.clone(), self.origin.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    /// Sends a GET. The headers override those of the connection.
    ///
    /// # Errors
    /// The path is malformed, or the connection is lost.
    pub async fn get(&mut self, path: &str, headers: &HeaderMap) -> io::Result<Response<Incoming>> {
        let mut uri = self.origin.clone().into_parts();
        uri.path_and_query = Some(path.parse().map_err(io::Error::other)?);
        let uri = Uri::from_parts(uri).map_err(io::Error::other)?;
        let mut request = Request::get(uri).body(Body::empty()).map_err(io::Error::other)?;
        request.headers_mut().extend(self.headers.clone());
        request.headers_mut().extend(headers.clone());
        self.send(request).await.map_err(io::Error::other)
    }

    fn send(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, BoxError>> + Send + 'static {
        let sent = self.sender.with(|sender| sender.send_request(request));
        async move {
            let sent = sent.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
            Ok(sent.await?)
        }
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    /// The library's own error, by which tonic chooses the code of a call.
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    /// A connection that has ended refuses its calls.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().extend(self.headers.clone());
        let (sent, peer) = (self.send(request), Arc::clone(&self.peer));
        Box::pin(async move {
            let response = sent.await?;
            // The library would take the first bytes of any other body for a message.
            peer.check(&response)?;
            Ok(response)
        })
    }
}
