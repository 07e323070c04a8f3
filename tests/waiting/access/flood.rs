//! What clients that nobody knows can do to the daemon's memory and to others: little. The daemon is a process of its own,
//! whose resident memory is looked at while every attack of the list runs against its delegated listener.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;
use tokio_rustls::client::TlsStream;

use crate::access::wire::connect;
use crate::access::world::fixtures;
use crate::cluster::Cluster;
use crate::support::binary::{Binary, informerd};
use crate::support::client::Client;
use crate::support::within;

/// What all of them together may cost.
const BOUND: u64 = 32 << 20;

/// The program as a process of its own, with a delegated and a trusted listener.
pub(super) struct Daemon {
    pub binary: Binary,
    pub delegated: String,
    pub trusted: String,
}

impl Daemon {
    pub(super) async fn start(cluster: &Cluster, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = informerd("run --listen delegated+https://127.0.0.1:0,http://127.0.0.1:0");
        configure(&mut command);
        let binary = Binary::run(command, &std::fs::read_to_string(cluster.admin()).unwrap(), &[]).await;
        let addresses = binary.addresses();
        let of = |kind: &str| addresses.iter().find(|at| at.starts_with(kind)).unwrap().replace("delegated+", "");
        Self { delegated: of("delegated+https://"), trusted: of("http://"), binary }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        connect(&self.delegated, &self.binary.ca()).await
    }

    pub(super) fn client(&self, token: &str) -> Client {
        Client::tls(&self.delegated, &self.binary.ca(), token)
    }

    /// A line of the process's status, in bytes.
    fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.binary.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>().unwrap() << 10
    }

    /// The peak counts from now on.
    fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.binary.pid()), "5").unwrap();
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        // An integer with a prefix of seven bits (RFC 7541, 5.1).
        let mut bytes = vec![u8::try_from(text.len().min(127)).unwrap()];
        if let Some(mut rest) = text.len().checked_sub(127) {
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128 + 128).unwrap());
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap());
        }
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    [vec![0], text(name), text(value)].concat()
}

/// POST of a path over HTTP/2, with a header of one byte so many times.
fn post(path: &str, headers: &[(&str, &str)], times: usize) -> Vec<u8> {
    let mut block = [vec![0x83, 0x87], literal(":path", path), literal(":authority", "localhost")].concat();
    for (name, value) in headers {
        block.extend(literal(name, value));
    }
    // `accept-encoding: gzip, deflate` of the static table.
    block.resize(block.len() + times, 0x90);
    block
}

/// A connection on which these streams are begun: HEADERS of at most one frame, and what follows them.
async fn begin(mut stream: TlsStream<TcpStream>, streams: usize, block: &[u8], then: &[u8], reset: bool) -> Held {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    for n in 0..streams {
        let id = u32::try_from(2 * n + 1).unwrap();
        let (first, rest) = block.split_at(block.len().min(16_000));
        bytes.extend(frame(1, if rest.is_empty() { 4 } else { 0 }, id, first));
        let mut rest = rest.chunks(16_000).peekable();
        while let Some(part) = rest.next() {
            bytes.extend(frame(9, if rest.peek().is_none() { 4 } else { 0 }, id, part));
        }
        for part in then.chunks(16_000) {
            bytes.extend(frame(0, 0, id, part));
        }
        if reset {
            bytes.extend(frame(3, 0, id, &[0, 0, 0, 8]));
        }
    }
    // It may be closed on us, or not be read to the end.
    tokio::time::timeout(Duration::from_millis(300), stream.write_all(&bytes)).await.ok();
    Held::Tls(Box::new(stream))
}

/// A connection that is kept open.
enum Held {
    Tls(#[expect(dead_code, reason = "kept open")] Box<TlsStream<TcpStream>>),
    Tcp(#[expect(dead_code, reason = "kept open")] TcpStream),
}

async fn say(mut stream: TlsStream<TcpStream>, text: Vec<u8>) -> Held {
    tokio::time::timeout(Duration::from_millis(300), stream.write_all(&text)).await.ok();
    Held::Tls(Box::new(stream))
}

const SYNC: &str = "/informerd.v1.Objects/Sync";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const GRPC: [(&str, &str); 2] = [("content-type", "application/grpc"), ("te", "trailers")];
const TOKEN: (&str, &str) = ("authorization", "Bearer x");

#[tokio::test(flavor = "multi_thread")]
async fn whoever_nobody_knows_costs_little() {
    let cluster = Cluster::start().await;
    cluster.apply(&fixtures()).await;
    let daemon = Daemon::start(&cluster, |_| ()).await;
    let token = cluster.token("a", "wide").await;
    let target = "/api/v1/namespaces/a/configmaps?resourceVersion=0";
    let (known, trusted) = (daemon.client(&token), Client::new(&daemon.trusted));
    for client in [&known, &trusted] {
        assert_eq!(client.get(target).await.status, 200);
    }
    assert_eq!(daemon.client("x").get(target).await.status, 401);
    let idle = daemon.memory("VmRSS");

    let long = format!("/api/v1/namespaces/x/{}", "p".repeat(60_000));
    let sync = |headers: &[(&str, &str)], times| post(SYNC, &[&GRPC[..], headers].concat(), times);
    let half = [&[0, 0, 64, 0, 0][..], &vec![b'x'; 1 << 20]].concat();
    let mut report = String::new();
    for attack in 1..=12 {
        daemon.forget_peak();
        // Handshakes cost the daemon and this machine more than what follows them.
        let tls = async |count: usize| join_all((0..count).map(|_| daemon.connect())).await.into_iter();
        let (what, held): (&str, Vec<Held>) = match attack {
            1 => {
                let block = sync(&[], 15_000);
                ("streams with many headers", join_all(tls(60).await.map(|s| begin(s, 100, &block, &[], false))).await)
            }
            2 => {
                let block = sync(&[TOKEN], 30_000);
                ("the same, with a token", join_all(tls(60).await.map(|s| begin(s, 100, &block, &[], false))).await)
            }
            3 => {
                let block = sync(&[TOKEN], 1500);
                (
                    "streams with as many as allowed",
                    join_all(tls(60).await.map(|s| begin(s, 100, &block, &[], false))).await,
                )
            }
            4 => {
                let block = sync(&[TOKEN], 0);
                ("messages that do not end", join_all(tls(60).await.map(|s| begin(s, 4, &block, &half, false))).await)
            }
            5 => {
                let block = post(&long, &[TOKEN], 0);
                ("resets of paths of 60 KB", join_all(tls(100).await.map(|s| begin(s, 20, &block, &[], true))).await)
            }
            6 => ("idle connections", tls(180).await.map(|stream| Held::Tls(Box::new(stream))).collect()),
            7 => {
                let head = [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec(), vec![b'x'; 2 << 20]].concat();
                ("heads that do not end", join_all(tls(100).await.map(|stream| say(stream, head.clone()))).await)
            }
            8 => {
                let head = "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\
                    Content-Length: 100000000\r\n\r\n";
                let text = [head.as_bytes(), &vec![b'x'; 2 << 20]].concat();
                ("bodies that do not end", join_all(tls(100).await.map(|stream| say(stream, text.clone()))).await)
            }
            9 => {
                let ask = |n: usize| {
                    let token = format!("{n}{}", "t".repeat(6000));
                    let client = daemon.client(&token);
                    async move { client.try_get(target).await }
                };
                join_all((0..200).map(ask)).await;
                ("tokens that nobody has seen", Vec::new())
            }
            10 => {
                let block = post(REFLECTION, &GRPC, 0);
                let list = [0, 0, 0, 0, 3, 0x3a, 1, b'*'];
                let held = join_all(tls(30).await.map(|s| begin(s, 400, &block, &list, false))).await;
                tokio::time::sleep(Duration::from_secs(3)).await;
                ("calls that last", held)
            }
            11 => {
                let open = |_| async {
                    let socket = TcpSocket::new_v4().unwrap();
                    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
                    let address = daemon.delegated.strip_prefix("https://").unwrap().parse().unwrap();
                    Held::Tcp(socket.connect(address).await.unwrap())
                };
                ("connections of another address, one after another", join_all((0..1000).map(open)).await)
            }
            _ => {
                let open = |_| async {
                    let address = daemon.delegated.strip_prefix("https://").unwrap();
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    // A handshake record of 16 KB whose end does not come.
                    stream.write_all(&[&[22, 3, 1, 63, 255][..], &[1; 16_000]].concat()).await.ok();
                    Held::Tcp(stream)
                };
                ("handshakes that do not end", join_all((0..120).map(open)).await)
            }
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Others are served meanwhile.
        for client in [&daemon.client(&token), &trusted] {
            assert_eq!(client.get(target).await.status, 200, "{what}");
        }
        drop(held);
        let peak = daemon.memory("VmHWM").saturating_sub(idle);
        report.push_str(&format!("{attack}. {what}: {:.1} MiB\n", peak as f64 / f64::from(1 << 20)));
        eprintln!("{}", report.lines().last().unwrap());
        assert!(peak <= BOUND, "idle {idle}, {report}");
    }
}

/// Of what somebody known leaves unread, the daemon knows how much memory it takes, also if that is one byte of each document.
#[tokio::test(flavor = "multi_thread")]
async fn documents_that_nobody_reads_are_counted() {
    let cluster = Cluster::start().await;
    cluster.apply(&fixtures()).await;
    let daemon = Daemon::start(&cluster, |_| ()).await;
    let token = cluster.token("a", "wide").await;
    let json = [("accept", "application/json")];
    let document = daemon.client(&token).request(http::Method::GET, "/openapi/v2", &json, "").await;
    assert_eq!(document.status, 200);
    let idle = daemon.memory("VmRSS");
    let window = u32::try_from(document.body.len() - 1).unwrap().to_be_bytes();
    let bearer = format!("Bearer {token}");
    let ask = async |n: usize| {
        let mut stream = daemon.connect().await;
        // Each is a document of its own.
        let accept = format!("application/json;q=0.{n}");
        let mut block = post("/openapi/v2", &[("accept", &accept), ("authorization", &bearer)], 0);
        // `:method: GET` of the static table.
        block[0] = 0x82;
        let settings = frame(4, 0, 0, &[&[0, 4][..], &window].concat());
        let asked = [settings, frame(8, 0, 0, &window), frame(1, 5, 1, &block)].concat();
        stream.write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &asked].concat()).await.unwrap();
        let (mut got, mut part) = (0, vec![0; 64 << 10]);
        while got < document.body.len() {
            // An answer whose client is too slow for it, on a busy machine, is given up.
            got += within("more of an answer", stream.read(&mut part)).await.ok().filter(|more| *more > 0)?;
        }
        Some(stream)
    };
    let held: Vec<_> = join_all((1..=60).map(ask)).await.into_iter().flatten().collect();
    assert!(held.len() >= 30, "{} of 60 answers", held.len());
    let counted = daemon.binary.metric("informerd_bodies_bytes").await;
    let grown = daemon.memory("VmRSS").saturating_sub(idle);
    assert!(
        grown as f64 <= counted + BOUND as f64,
        "{grown} bytes for {} of {}, {counted} count",
        held.len(),
        document.body.len()
    );
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_told_to_go_after_a_401() {
    let cluster = Cluster::start().await;
    let daemon = Daemon::start(&cluster, |_| ()).await;
    let mut stream = daemon.connect().await;
    let block = post("/api/v1/namespaces", &[TOKEN], 0);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([frame(4, 0, 0, &[]), frame(1, 5, 1, &block)].concat());
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    within("an end", stream.read_to_end(&mut answer)).await.ok();
    let mut kinds = Vec::new();
    let mut rest = &answer[..];
    while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
        kinds.push(*kind);
        rest = &after[u32::from_be_bytes([0, *a, *b, *c]).try_into().unwrap()..];
    }
    let at = |kind| kinds.iter().position(|seen| *seen == kind).unwrap_or_else(|| panic!("no {kind}: {kinds:?}"));
    assert!(at(1) < kinds.len() && at(7) < kinds.len(), "an answer, and GOAWAY: {kinds:?}");
}
