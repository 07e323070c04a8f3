//! When clients can connect. These tests use real sockets.

use std::io::ErrorKind;
use std::net::SocketAddr;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Empty};
use tokio::net::{TcpListener, TcpSocket};

use super::super::answer::{Body, BoxFuture, full};
use super::*;
use crate::http::testing::{http1_client, self_signed, trusting};
use crate::lifecycle::drain;

struct Hello;

impl Handler for Hello {
    fn handle(&self, _: Request<RequestBody>, _: &Arc<Connection>) -> BoxFuture<Response<Body>> {
        Box::pin(async { Response::new(full(Bytes::from_static(b"hello"))) })
    }
}

fn bind(listen: &str, given: bool) -> Result<Server, BindError> {
    let mut config = HttpConfig::new(vec![listen.parse().unwrap()], PathBuf::from("/nowhere"));
    config.tls.given = given;
    Server::bind(config, Arc::default())
}

fn tcp(server: &Server) -> SocketAddr {
    match server.addresses()[0] {
        ListenAddr::Http(address) | ListenAddr::Https(address) | ListenAddr::Delegated(address) => address,
        ListenAddr::Unix(_) => panic!("a tcp listener"),
    }
}

async fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// What accepts a connection and cannot answer has clients give up what they hold. Who is refused tries again.
#[tokio::test]
async fn who_connects_before_there_is_a_certificate_is_refused() {
    for listen in ["https://127.0.0.1:0", "delegated+https://127.0.0.1:0"] {
        let server = bind(listen, true).unwrap();
        let (address, certificates) = (tcp(&server), server.certificates().unwrap());
        assert!(is_refused(address).await, "{listen} serves nothing yet");
        let (_drain, watch) = drain::channel();
        server.serve(Arc::new(Hello), &watch, &Fatal::new()).unwrap();
        assert!(is_refused(address).await, "{listen} has no certificate");
        let (certificate, key) = self_signed();
        assert!(certificates.give("no certificate", &key).is_err() && is_refused(address).await, "{listen}");
        for _ in 0..2 {
            certificates.give(&certificate.pem(), &key).unwrap();
            let connector = trusting([certificate.der().clone()], &[]);
            let stream = TcpStream::connect(address).await.unwrap();
            let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
            let request = Request::get("/").header("host", "localhost").body(Empty::<Bytes>::new()).unwrap();
            let answer = http1_client(stream).await.send_request(request).await.unwrap();
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
        }
    }
}

/// A listener without TLS also refuses connections until it serves.
#[tokio::test]
async fn who_connects_before_it_serves_is_refused() {
    let server = bind("http://127.0.0.1:0", false).unwrap();
    let address = tcp(&server);
    assert!(is_refused(address).await);
    let (_drain, watch) = drain::channel();
    server.serve(Arc::new(Hello), &watch, &Fatal::new()).unwrap();
    assert!(!is_refused(address).await);
}

#[tokio::test]
async fn an_address_in_use_is_told_at_once_or_when_it_listens() {
    let is_in_use =
        |error: &BindError| matches!(error, BindError::Socket { error, .. } if error.kind() == ErrorKind::AddrInUse);
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (scheme, given) in [("http", false), ("https", true), ("delegated+https", true)] {
        let bound = bind(&format!("{scheme}://{}", other.local_addr().unwrap()), given);
        assert!(bound.is_err_and(|error| is_in_use(&error)), "{scheme}");

        // Nobody listens there yet, but another process does before this one.
        let server = bind(&format!("{scheme}://127.0.0.1:0"), given).unwrap();
        let other = TcpSocket::new_v4().unwrap();
        other.set_reuseaddr(true).unwrap();
        other.bind(tcp(&server)).unwrap();
        let _other = other.listen(1).unwrap();
        let (certificates, (_drain, watch), fatal) = (server.certificates(), drain::channel(), Fatal::new());
        let served = server.serve(Arc::new(Hello), &watch, &fatal);
        if given {
            served.unwrap();
            let (certificate, key) = self_signed();
            certificates.unwrap().give(&certificate.pem(), &key).unwrap();
            assert_eq!(fatal.wait().await.to_string(), "task accept cannot listen");
        } else {
            assert!(served.is_err_and(|error| is_in_use(&error)));
        }
    }
}
