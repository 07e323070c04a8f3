//! A proxy that is wrong in one way, to see that the harness sees it; and one that is right, to see that it sees nothing.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use informerd::lifecycle;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::streams::{complete, events_of};
use super::wire::{Ask, Endpoint, Framing, Response, headers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Of every watch in this encoding the third change is missing.
    DropsAnEvent(Form),
    RepeatsAnEvent(Form),
    /// Bookmarks tell of a revision that has not come yet.
    BookmarksAhead(Form),
    /// Watches end without their errors.
    KeepsErrors,
    /// Watches tell of no deletion.
    KeepsDeletions,
    /// As if nobody had selected anything.
    IgnoresSelectors,
    /// Two members of an object change places.
    ReordersAKey,
    /// A list says a revision that it is not of.
    FakesARevision,
    StripsAHeader,
    /// The pages after the first are of the newest state.
    ForgetsTheSnapshot,
    /// The last object of a list is missing.
    LosesAnObject,
    /// The last row of a table is missing.
    LosesARow,
    /// Another bit in the middle of each list and object in protobuf.
    FlipsABit,
    /// Whoever asks is the administrator.
    TrustsEverybody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
}

/// Serves until it is dropped.
pub(crate) struct WrongProxy {
    pub url: String,
    task: JoinHandle<()>,
}

impl Drop for WrongProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl WrongProxy ===

impl WrongProxy {
    pub(crate) async fn start(fault: Fault, direct: Endpoint) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let task = lifecycle::spawn("wrong-proxy", async move {
            while let Ok((stream, _)) = listener.accept().await {
                let direct = direct.clone();
                lifecycle::spawn("wrong-proxy-connection", async move {
                    // A client that goes away is none of its faults.
                    connection(fault, &direct, stream).await.ok();
                });
            }
        });
        Ok(Self { url, task })
    }
}

async fn connection(fault: Fault, direct: &Endpoint, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    while let Some(mut ask) = request(&mut stream).await? {
        ask.target = spoiled_target(fault, &ask.target)
            .replace(&format!("http://{}", stream.get_ref().local_addr()?), "http://x");
        if fault == Fault::TrustsEverybody {
            ask.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
        }
        let answer = direct.open(&ask).await?;
        let closes = answer.head.header("connection") == Some("close") || answer.head.framing == Framing::Close;
        relay(fault, &ask, answer, &mut stream).await?;
        if closes {
            return Ok(());
        }
    }
    Ok(())
}

async fn request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Ask>> {
    let mut line = Vec::new();
    if stream.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    let mut words = text.splitn(2, ' ');
    let (method, rest) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let target = rest.rsplit_once(' ').map_or(rest, |(target, _)| target);
    let mut ask = Ask::method(method, target);
    let mut length = 0;
    for (name, value) in headers(stream).await? {
        match &*name {
            "host" => {}
            "content-length" => length = value.parse().unwrap_or(0),
            _ => ask.headers.push((name, value)),
        }
    }
    if length > 0 || ask.has("content-type") {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        ask.body = Some(String::from_utf8_lossy(&body).into_owned());
    }
    Ok(Some(ask))
}

async fn relay(fault: Fault, ask: &Ask, mut answer: Response, to: &mut BufReader<TcpStream>) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.head.status, answer.head.reason);
    for (name, value) in &answer.head.headers {
        let strips = fault == Fault::StripsAHeader && name == "cache-control";
        if !strips && (name != "content-length" || ask.method == "HEAD") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    if answer.head.framing == Framing::Chunked && ask.target.contains("watch") {
        to.write_all(format!("{head}\r\n").as_bytes()).await?;
        let is_protobuf = answer.head.header("content-type").is_some_and(|form| form.contains("protobuf"));
        let form = if is_protobuf { Form::Protobuf } else { Form::Json };
        let mut spoiled = Spoiled { fault, form, pending: Vec::new(), changes: 0 };
        while let Some(piece) = answer.next().await? {
            chunk(to, &spoiled.pass(&piece)).await?;
        }
        return to.write_all(b"0\r\n\r\n").await;
    }
    let whole = answer.whole(Instant::now() + Duration::from_secs(60)).await;
    let mut body = spoiled_body(fault, ask, whole.body);
    if fault == Fault::FlipsABit && whole.status == 200 && body.starts_with(b"k8s\0") {
        let middle = body.len() / 2;
        body[middle] ^= 1;
    }
    if matches!(whole.framing, Framing::Length(_)) && ask.method != "HEAD" {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    to.write_all(format!("{head}\r\n").as_bytes()).await?;
    if whole.framing == Framing::Chunked && ask.method != "HEAD" {
        chunk(to, &body).await?;
        return to.write_all(b"0\r\n\r\n").await;
    }
    to.write_all(&body).await
}

async fn chunk(to: &mut BufReader<TcpStream>, piece: &[u8]) -> io::Result<()> {
    if piece.is_empty() {
        return Ok(());
    }
    to.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
    to.write_all(piece).await?;
    to.write_all(b"\r\n").await?;
    to.flush().await
}

fn spoiled_target(fault: Fault, target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else { return target.to_owned() };
    let parts = query.split('&').filter_map(|part| match (fault, part.split_once('=')) {
        (Fault::IgnoresSelectors, Some(("labelSelector" | "fieldSelector", _))) => None,
        (Fault::ForgetsTheSnapshot, Some(("continue", token))) => Some(format!("continue={}", newest(token))),
        _ => Some(part.to_owned()),
    });
    let parts: Vec<String> = parts.collect();
    format!("{path}?{}", parts.join("&"))
}

/// The token for what follows in the newest state.
fn newest(token: &str) -> String {
    let said = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
    let Ok(mut said) = serde_json::from_slice::<serde_json::Value>(&said) else { return token.to_owned() };
    said["rv"] = serde_json::json!(-1);
    URL_SAFE_NO_PAD.encode(said.to_string())
}

fn spoiled_body(fault: Fault, ask: &Ask, body: Vec<u8>) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    let without_last = |beginning: &str| {
        let is_list = ask.method == "GET" && text.ends_with("}]}\n");
        text.rfind(beginning).filter(|_| is_list).map(|at| format!("{}]}}\n", &text[..at]))
    };
    let spoiled = match fault {
        Fault::ReordersAKey => reordered(text),
        Fault::FakesARevision if text.contains("\"items\":[") => Some(later(text, 1)),
        Fault::LosesARow => without_last(",{\"cells\":"),
        Fault::LosesAnObject => without_last(",{\"metadata\":{\"name\""),
        _ => None,
    };
    spoiled.map_or(body, String::into_bytes)
}

fn reordered(text: &str) -> Option<String> {
    let (kind, rest) = text.strip_prefix("{\"kind\":")?.split_once(",\"apiVersion\":")?;
    let (version, rest) = rest.split_once(',')?;
    Some(format!("{{\"apiVersion\":{version},\"kind\":{kind},{rest}"))
}

/// With the first revision raised.
fn later(text: &str, by: u64) -> String {
    const VERSION: &str = "\"resourceVersion\":\"";
    let Some(at) = text.find(VERSION).map(|at| at + VERSION.len()) else { return text.to_owned() };
    let end = text[at..].find('"').map_or(at, |length| at + length);
    let raised = text[at..end].parse::<u64>().map_or(0, |rv| rv + by);
    format!("{}{raised}{}", &text[..at], &text[end..])
}

/// The events of one watch.
struct Spoiled {
    fault: Fault,
    form: Form,
    pending: Vec<u8>,
    changes: usize,
}

// === impl Spoiled ===

impl Spoiled {
    fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let is_protobuf = self.form == Form::Protobuf;
        self.pending.extend_from_slice(piece);
        let whole: Vec<u8> = self.pending.drain(..complete(is_protobuf, &self.pending)).collect();
        let mut out = Vec::new();
        // What is no event is passed on as it is.
        let Ok(events) = events_of(is_protobuf, &whole) else { return whole };
        for event in events {
            self.changes += usize::from(event.kind == "MODIFIED");
            let is_third = event.kind == "MODIFIED" && self.changes == 3;
            let bytes = match self.fault {
                Fault::DropsAnEvent(form) if form == self.form && is_third => continue,
                Fault::KeepsErrors if event.kind == "ERROR" => continue,
                Fault::KeepsDeletions if event.kind == "DELETED" => continue,
                Fault::BookmarksAhead(form) if form == self.form && event.kind == "BOOKMARK" => {
                    raised(&event.bytes, event.rv)
                }
                _ => event.bytes,
            };
            let times = if self.fault == Fault::RepeatsAnEvent(self.form) && is_third { 2 } else { 1 };
            for _ in 0..times {
                if is_protobuf {
                    out.extend(u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
                }
                out.extend_from_slice(&bytes);
            }
        }
        out
    }
}

/// With the last revision of as many digits: a message in protobuf tells its length.
fn raised(bytes: &[u8], rv: u64) -> Vec<u8> {
    let old = rv.to_string();
    match bytes.windows(old.len()).position(|window| window == old.as_bytes()) {
        Some(at) => [&bytes[..at], "9".repeat(old.len()).as_bytes(), &bytes[at + old.len()..]].concat(),
        None => bytes.to_vec(),
    }
}
