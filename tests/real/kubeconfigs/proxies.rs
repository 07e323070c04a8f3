//! A proxy that leads everybody to one server, whatever server is asked for: by CONNECT, or by SOCKS 5. It wants the
//! user `u` with the password `p:w` if a client names any.

use std::net::SocketAddr;

use informerd::lifecycle;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Returns its `host:port`.
pub(crate) async fn before(server: SocketAddr) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    lifecycle::spawn("proxy", async move {
        while let Ok((mut client, _)) = listener.accept().await {
            lifecycle::spawn("proxied", async move {
                if greet(&mut client).await.is_some()
                    && let Ok(mut server) = TcpStream::connect(server).await
                {
                    copy_bidirectional(&mut client, &mut server).await.ok();
                }
            });
        }
    });
    address.to_string()
}

/// `None` if the client is not to be served.
async fn greet(client: &mut TcpStream) -> Option<()> {
    let first = client.read_u8().await.ok()?;
    if first == 5 { socks(client).await } else { connect(client).await }
}

async fn connect(client: &mut TcpStream) -> Option<()> {
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

async fn socks(client: &mut TcpStream) -> Option<()> {
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
