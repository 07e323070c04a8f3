//! The beginning of a connection over TLS.

use std::io;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::cipher_suites::TlsServer;
use super::connection::Connection;
use super::newcomer::Stage;
use super::socket::Tcp;

const HTTP_WITHOUT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Accepts TLS. A client that sends HTTP without TLS gets the same 400 as from the apiserver.
pub(in crate::http) async fn accept_tls(
    acceptor: TlsServer,
    mut stream: TcpStream,
    connection: &Connection,
) -> io::Result<TlsStream<Tcp>> {
    let mut first = [0; 5];
    let read = stream.peek(&mut first).await?;
    connection.reached(Stage::Begun);
    if [&b"GET /"[..], b"HEAD ", b"POST ", b"PUT /", b"OPTIO"].contains(&&first[..read]) {
        // Unread bytes would reset the connection before the client reads the answer.
        stream.try_read(&mut [0; 4096])?;
        stream.write_all(HTTP_WITHOUT_TLS).await?;
        stream.shutdown().await?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, "HTTP without TLS"));
    }
    acceptor.accept(Tcp(stream)).await
}
