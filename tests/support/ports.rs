//! Ports for servers that begin to listen later.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port that nobody else is given, and where nobody listens. Otherwise a connection of another test, or the attempt of
/// a client to connect to this very port, may take it. A server that sets `SO_REUSEADDR`, as informerd does, can listen
/// there meanwhile.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    #[expect(dead_code, reason = "kept open")]
    socket: TcpSocket,
}

impl Port {
    pub(crate) fn free() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self { address: socket.local_addr().unwrap(), socket }
    }
}
