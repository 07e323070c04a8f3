//! A proxy that leads everybody to one server, whatever server is asked for: by CONNECT, or by SOCKS 5. It wants the
//! user `u` with the password `p:w` if a client names any.

use std::net::SocketAddr;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;

use super::data;
use crate::support::serve::{acceptor, listen};

/// The same over TLS. It speaks no HTTP/2, and has the certificate of another name.
pub(crate) async fn over_tls(server: SocketAddr) -> String {
    let certificate = CertificateDer::from_pem_file(data("server-leaf.crt")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(data("server-leaf.key")).expect("a key");
    listen(Some(acceptor(certificate, key)), move |client| lead(client, server)).await.to_string()
}

/// Returns its `host:port`.
pub(crate) async fn before(server: SocketAddr) -> String {
    listen(None, move |client| lead(client, server)).await.to_string()
}

async fn lead(mut client: impl AsyncRead + AsyncWrite + Unpin, server: SocketAddr) {
    if greet(&mut client).await.is_some()
        && let Ok(mut server) = TcpStream::connect(server).await
    {
        copy_bidirectional(&mut client, &mut server).await.ok();
    }
}

/// `None` if the client is not to be served.
async fn greet(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<()> {
    let first = client.read_u8().await.ok()?;
    if first == 5 { socks(client).await } else { connect(client).await }
}

async fn connect(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    // "C" was read already.
    let is_wanted = head.starts_with("onnect ");
    let is_user = !head.contains("proxy-authorization:") || head.contains("proxy-authorization: basic dtpwonc=");
    let answer = if is_wanted && is_user { "HTTP/1.1 200 OK\r\n\r\n" } else { "HTTP/1.1 407 No\r\n\r\n" };
    client.write_all(answer.as_bytes()).await.ok()?;
    (is_wanted && is_user).then_some(())
}

async fn socks(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<()> {
    let mut methods = vec![0; client.read_u8().await.ok()?.into()];
    client.read_exact(&mut methods).await.ok()?;
    let method = if methods.contains(&2) { 2 } else { 0 };
    client.write_all(&[5, method]).await.ok()?;
    if method == 2 {
        let mut credentials = [0; 7];
        client.read_exact(&mut credentials).await.ok()?;
        let is_user = credentials == *b"\x01\x01u\x03p:w";
        client.write_all(&[1, u8::from(!is_user)]).await.ok()?;
        is_user.then_some(())?;
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await.ok()?;
    let length = match request[3] {
        1 => 4,
        3 => client.read_u8().await.ok()?.into(),
        _ => 16,
    };
    let mut address = vec![0; length + 2];
    client.read_exact(&mut address).await.ok()?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.ok()
}
