//! Servers that tests have written themselves, on free ports and until their tests end.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use informerd::lifecycle::spawn;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, whether over TLS or not.
pub(crate) type Stream = Box<dyn Duplex>;

type Wrong = Box<dyn Error + Send + Sync>;

/// Does this with each connection.
pub(crate) async fn listen<F>(
    tls: Option<TlsAcceptor>,
    each: impl Fn(Stream) -> F + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let each = Arc::new(each);
    spawn("server of a test", async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).ok();
            let (tls, each) = (tls.clone(), Arc::clone(&each));
            spawn("connection of a test", async move {
                let stream: Stream = match tls {
                    None => Box::new(stream),
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => Box::new(stream),
                        Err(_) => return,
                    },
                };
                each(stream).await;
            });
        }
    });
    address
}

/// Answers what one connection asks, by any version of HTTP. An error ends the connection.
pub(crate) async fn connection<F, B>(stream: Stream, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Result<Response<B>, Wrong>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Wrong>> + Send + 'static,
{
    let server = auto::Builder::new(TokioExecutor::new());
    server.serve_connection(TokioIo::new(stream), service_fn(answer)).await.ok();
}

/// Answers by any version of HTTP.
pub(crate) async fn answering<F, B>(
    tls: Option<TlsAcceptor>,
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> SocketAddr
where
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data: Send, Error: Into<Wrong>> + Send + 'static,
{
    let infallible = move |request| {
        let answer = answer(request);
        async move { Ok::<_, Wrong>(answer.await) }
    };
    listen(tls, move |stream| connection(stream, infallible.clone())).await
}

/// With this certificate.
pub(crate) fn acceptor(certificate: CertificateDer<'static>, key: PrivateKeyDer<'static>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}
