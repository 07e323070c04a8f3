//! Calls of gRPC as they stand on the wire, by clients that do not take their answers.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Response, StatusCode};
use informerd::grpc::pb::v1;
use informerd::lifecycle::spawn;
use prost::Message as _;
use tokio::net::TcpStream;

use crate::support::grpc;

/// A connection whose windows let through as much as those of most clients, and on which nothing is read.
pub(super) struct Connection {
    sender: SendRequest<Bytes>,
    calls: Vec<Call>,
    driver: tokio::task::JoinHandle<()>,
}

struct Call {
    answer: ResponseFuture,
    /// Kept open: the client may have more to say.
    _rest: SendStream<Bytes>,
}

/// What became of the calls of a connection.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Answers that have begun.
    pub begun: Vec<RecvStream>,
    /// Codes of those that were refused.
    pub refused: Vec<tonic::Code>,
    /// Those of which nothing was heard.
    pub silent: usize,
}

const WINDOW: u32 = 65_535;
/// So long the next answer is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

// === impl Connection ===

impl Connection {
    pub(super) async fn open(url: &str) -> Self {
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).max_concurrent_reset_streams(0);
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        let driver = spawn("connection", async move { drop(connection.await) });
        Self { sender, calls: Vec::new(), driver }
    }

    /// Begins a call with this much of its request, or all of it.
    pub(super) async fn call(&mut self, method: &str, sent: Bytes, is_all: bool) {
        let uri = format!("http://localhost/informerd.v1.{method}");
        let request = Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        self.sender = self.sender.clone().ready().await.unwrap();
        let (answer, mut rest) = self.sender.send_request(request.body(()).unwrap(), false).unwrap();
        // A call may be refused before its message is sent: its answer says so.
        drop(rest.send_data(sent, is_all));
        self.calls.push(Call { answer, _rest: rest });
    }

    /// Waits for the beginnings of the answers, and takes nothing else.
    pub(super) async fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let wait = |call: Call| async move { (call.answer.await, call._rest) };
        let mut open: FuturesUnordered<_> = self.calls.drain(..).map(wait).collect();
        while let Ok(Some((answer, rest))) = tokio::time::timeout(PATIENCE, open.next()).await {
            match answer.map(Response::into_parts) {
                Ok((head, body)) => match head.headers.get("grpc-status") {
                    // Refused before it is known to be a call.
                    None if head.status == StatusCode::TOO_MANY_REQUESTS => {
                        heard.refused.push(tonic::Code::ResourceExhausted);
                    }
                    None => heard.begun.push(body),
                    Some(code) => heard.refused.push(tonic::Code::from_bytes(code.as_bytes())),
                },
                Err(error) => {
                    assert!(error.is_reset(), "{error}");
                    heard.refused.push(tonic::Code::ResourceExhausted);
                }
            }
            drop(rest);
        }
        heard.silent = open.len();
        heard
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A message behind its length.
fn framed(message: &impl prost::Message) -> Bytes {
    grpc::framed(&message.encode_to_vec()).into()
}

pub(super) fn config_maps(namespace: &str) -> v1::Selection {
    grpc::filtered("configmaps", vec![grpc::namespace(namespace)])
}

/// The watch of a client that says to hold so many objects.
pub(super) fn watch_with_known(objects: usize) -> Bytes {
    let known = (0..objects).map(|n| (format!("{n:08}-0000-4000-8000-000000000000"), format!("{n}"))).collect();
    framed(&v1::WatchRequest { known, ..grpc::watch_of(config_maps("n0")) })
}

/// A list by so many filters that say nothing: two bytes each.
pub(super) fn list_of_filters(filters: usize) -> Bytes {
    let selection = [[0x12, 0].repeat(filters), config_maps("n0").encode_to_vec()].concat();
    let mut message = vec![0x0a];
    prost::encoding::encode_varint(selection.len() as u64, &mut message);
    message.extend(selection);
    grpc::framed(&message).into()
}

pub(super) fn get(namespace: &str, name: &str) -> Bytes {
    let resource = Some(grpc::resource("configmaps"));
    framed(&v1::GetRequest { resource, namespace: namespace.into(), name: name.into(), ..Default::default() })
}

/// The worker of a group of its own that takes as many keys as it may.
pub(super) fn worker(group: usize, namespace: &str) -> Bytes {
    framed(&grpc::join(&format!("g{group}"), vec![config_maps(namespace)], 10_000))
}

pub(super) fn list(namespace: &str) -> Bytes {
    framed(&grpc::list_of(config_maps(namespace)))
}

pub(super) fn watch(namespace: &str) -> Bytes {
    framed(&grpc::watch_of(config_maps(namespace)))
}
