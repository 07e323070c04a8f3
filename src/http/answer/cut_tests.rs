//! Bodies of requests that end too early, on real sockets.

use http::Request;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::super::body::{Body as Answer, full};
use super::super::handler::{BoxFuture, Handler};
use super::super::request_body::RequestBody;
use super::*;
use crate::apiserver::raw_testing::{DATA, END_STREAM, GOAWAY, RST_STREAM, SETTINGS, frame, head};
use crate::http::door::{Connection, HTTP2_PREFACE};
use crate::http::testing::serve;
use crate::lifecycle::drain::Drain;
use crate::lifecycle::spawn;

/// What came of an upload. `None` if it failed.
type Upload = Option<String>;

/// Reads each body elsewhere, as the connection to the apiserver does. The answer comes early, or never.
struct Uploads {
    seen: mpsc::Sender<Upload>,
    is_early: bool,
}

impl Handler for Uploads {
    fn handle(&self, request: Request<RequestBody>, _: &Arc<Connection>) -> BoxFuture<http::Response<Answer>> {
        let info = RequestInfo::parse("POST", "/api/v1/namespaces/a/pods/p/proxy/upload", "");
        let body = Patient::new(request.into_body(), &info);
        let seen = self.seen.clone();
        spawn("upload", async move {
            let whole = body.collect().await.ok();
            seen.send(whole.map(|whole| String::from_utf8(whole.to_bytes().to_vec()).unwrap())).await.ok();
        });
        match self.is_early {
            true => Box::pin(async { http::Response::new(full(Bytes::from_static(b"early"))) }),
            false => Box::pin(std::future::pending()),
        }
    }
}

struct Running {
    server: std::net::SocketAddr,
    seen: mpsc::Receiver<Upload>,
    drain: Drain,
    _directory: tempfile::TempDir,
}

fn start(is_early: bool) -> Running {
    let (sender, seen) = mpsc::channel(8);
    let (server, drain, directory) = serve(Uploads { seen: sender, is_early });
    Running { server, seen, drain, _directory: directory }
}

impl Running {
    async fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.server).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    async fn upload(&mut self) -> Upload {
        let seen = tokio::time::timeout(Duration::from_secs(60), self.seen.recv()).await;
        seen.expect("the body ends or fails").unwrap()
    }
}

fn post2(flags: u8, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/")];
    head(1, flags, &[&fields[..], more].concat())
}

#[tokio::test]
async fn an_upload_over_http2_ends_with_its_stream_or_its_length() {
    let begun = || post2(0, &[]);
    let of_length = |length| post2(0, &[("content-length", length)]);
    let half = || frame(DATA, 0, 1, b"half");
    let end = || frame(DATA, END_STREAM, 1, b"half");
    let reset = || frame(RST_STREAM, 0, 1, &[0; 4]);
    for (name, frames, closes, expected) in [
        ("end", vec![begun(), end()], false, Some("half")),
        ("end, reset", vec![begun(), end(), reset()], false, Some("half")),
        ("end in head", vec![post2(END_STREAM, &[])], false, Some("")),
        ("trailers", vec![begun(), half(), head(1, END_STREAM, &[("a", "b")])], false, Some("half")),
        ("length, reset", vec![of_length("4"), half(), reset()], false, Some("half")),
        ("reset", vec![begun(), half(), reset()], false, None),
        ("reset before data", vec![begun(), reset()], false, None),
        ("less than the length, reset", vec![of_length("8"), half(), reset()], false, None),
        ("less than the length, end", vec![of_length("8"), end()], false, None),
        ("another reset", vec![begun(), half(), frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])], false, None),
        ("goaway, closed", vec![begun(), half(), frame(GOAWAY, 0, 0, &[0; 8])], true, None),
        ("closed", vec![begun(), half()], true, None),
    ] {
        let mut running = start(false);
        let opening = [HTTP2_PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].concat();
        let stream = running.send(&[opening, frames.concat()].concat()).await;
        let open = (!closes).then_some(stream);
        assert_eq!(running.upload().await.as_deref(), expected, "{name}");
        drop(open);
    }
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
const OF_LENGTH: &str = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8\r\n\r\n";

#[tokio::test]
async fn an_upload_over_http1_ends_with_its_message() {
    for (request, closes, expected) in [
        (format!("{CHUNKED}4\r\nhalf\r\n0\r\n\r\n"), false, Some("half")),
        (format!("{OF_LENGTH}halfhalf"), false, Some("halfhalf")),
        (format!("{CHUNKED}4\r\nhalf\r\n"), true, None),
        (format!("{CHUNKED}4\r\nhalf\r\n0\r\n"), true, None),
        (format!("{CHUNKED}8\r\nhalf"), true, None),
        (format!("{OF_LENGTH}half"), true, None),
    ] {
        let mut running = start(false);
        let stream = running.send(request.as_bytes()).await;
        let open = (!closes).then_some(stream);
        assert_eq!(running.upload().await.as_deref(), expected, "{request:?}");
        drop(open);
    }
}

/// The library fails the bodies of a connection that is dropped.
#[tokio::test]
async fn an_upload_is_cut_when_the_daemon_drops_its_connection() {
    for (is_early, request) in [CHUNKED, OF_LENGTH].into_iter().flat_map(|of| [(false, of), (true, of)]) {
        let part = if request == CHUNKED { "4\r\nhalf\r\n" } else { "half" };
        let mut running = start(is_early);
        let mut stream = running.send(format!("{request}{part}").as_bytes()).await;
        if is_early {
            stream.read_exact(&mut [0; 15]).await.unwrap();
        }
        // The connection has read the part.
        tokio::time::sleep(Duration::from_millis(50)).await;
        running.drain.start(Duration::from_secs(30));
        running.drain.force();
        assert_eq!(running.upload().await, None, "{request:?}, early: {is_early}");
    }
}

/// As when a client drops all its watches. The request after them is answered.
#[tokio::test]
async fn so_many_streams_may_be_reset_before_they_are_looked_at() {
    for (streams, is_answered) in [(256, true), (257, false)] {
        let running = start(true);
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/")];
        let get = |n: u32| head(2 * n + 1, END_STREAM, &fields);
        let dropped = (0..streams).flat_map(|n| [get(n), frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])]);
        let opening =
            [HTTP2_PREFACE.to_vec(), frame(SETTINGS, 0, 0, &[])].into_iter().chain(dropped).chain([get(streams)]);
        let mut stream = running.send(&opening.flatten().collect::<Vec<_>>()).await;
        let (mut said, is_answer) = (Vec::new(), |part: &[u8]| part == b"early");
        while !said.windows(5).any(is_answer) && stream.read_buf(&mut said).await.is_ok_and(|read| read > 0) {}
        assert_eq!(said.windows(5).any(is_answer), is_answered, "{streams}");
    }
}
