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

use super::wire::{Ask, Endpoint, Framing, Response};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Of every watch the third change is missing.
    DropsAnEvent,
    RepeatsAnEvent,
    /// Bookmarks tell of a revision that has not come yet.
    BookmarksAhead,
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
        let answer = direct.open(&ask).await?;
        let closes = answer.header("connection") == Some("close") || answer.framing == Framing::Close;
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
    loop {
        line.clear();
        stream.read_until(b'\n', &mut line).await?;
        let text = String::from_utf8_lossy(&line);
        let Some((name, value)) = text.trim_end_matches(['\r', '\n']).split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "host" => {}
            "content-length" => length = value.trim().parse().unwrap_or(0),
            _ => ask.headers.push((name.to_owned(), value.trim().to_owned())),
        }
    }
    if length > 0 || ask.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        ask.body = Some(String::from_utf8_lossy(&body).into_owned());
    }
    Ok(Some(ask))
}

async fn relay(fault: Fault, ask: &Ask, mut answer: Response, to: &mut BufReader<TcpStream>) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} {}\r\n", answer.status, answer.reason);
    for (name, value) in &answer.headers {
        let strips = fault == Fault::StripsAHeader && name == "cache-control";
        if !strips && (name != "content-length" || ask.method == "HEAD") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    let streams = answer.framing == Framing::Chunked && ask.target.contains("watch");
    if streams {
        to.write_all(format!("{head}\r\n").as_bytes()).await?;
        let mut lines = Lines { fault, pending: Vec::new(), changes: 0 };
        let is_json = answer.header("content-type") == Some("application/json");
        while let Some(piece) = answer.next().await? {
            let piece = if is_json { lines.pass(&piece) } else { piece };
            chunk(to, &piece).await?;
        }
        return to.write_all(b"0\r\n\r\n").await;
    }
    let framing = answer.framing;
    let whole = answer.whole(Instant::now() + Duration::from_secs(60)).await;
    let body = spoiled_body(fault, ask, whole.body);
    match framing {
        Framing::Length(_) if ask.method != "HEAD" => {
            head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
            to.write_all(head.as_bytes()).await?;
            to.write_all(&body).await
        }
        Framing::Chunked if ask.method != "HEAD" => {
            to.write_all(format!("{head}\r\n").as_bytes()).await?;
            chunk(to, &body).await?;
            to.write_all(b"0\r\n\r\n").await
        }
        _ => {
            to.write_all(format!("{head}\r\n").as_bytes()).await?;
            to.write_all(&body).await
        }
    }
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
    match fault {
        Fault::ReordersAKey => {
            match text.strip_prefix("{\"kind\":").and_then(|rest| rest.split_once(",\"apiVersion\":")) {
                Some((kind, rest)) => match rest.split_once(',') {
                    Some((version, rest)) => format!("{{\"apiVersion\":{version},\"kind\":{kind},{rest}").into_bytes(),
                    None => body,
                },
                None => body,
            }
        }
        Fault::FakesARevision if text.contains("\"items\":[") => later(text, 1).into_bytes(),
        Fault::LosesAnObject if ask.method == "GET" && text.ends_with("}]}\n") => {
            match text.rfind(",{\"metadata\":{\"name\"") {
                Some(at) => format!("{}]}}\n", &text[..at]).into_bytes(),
                None => body,
            }
        }
        _ => body,
    }
}

/// With the first revision raised.
fn later(text: &str, by: u64) -> String {
    const VERSION: &str = "\"resourceVersion\":\"";
    let Some(at) = text.find(VERSION).map(|at| at + VERSION.len()) else { return text.to_owned() };
    let end = text[at..].find('"').map_or(at, |length| at + length);
    let raised = text[at..end].parse::<u64>().map_or(0, |rv| rv + by);
    format!("{}{raised}{}", &text[..at], &text[end..])
}

/// The lines of one watch.
struct Lines {
    fault: Fault,
    pending: Vec<u8>,
    changes: usize,
}

// === impl Lines ===

impl Lines {
    fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(piece);
        let mut out = Vec::new();
        while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let is_change = line.starts_with(b"{\"type\":\"MODIFIED\"");
            self.changes += usize::from(is_change);
            match self.fault {
                Fault::DropsAnEvent if is_change && self.changes == 3 => {}
                Fault::RepeatsAnEvent if is_change && self.changes == 3 => out.extend([line.clone(), line].concat()),
                Fault::BookmarksAhead if line.starts_with(b"{\"type\":\"BOOKMARK\"") => {
                    out.extend_from_slice(later(&String::from_utf8_lossy(&line), 1000).as_bytes());
                }
                _ => out.extend_from_slice(&line),
            }
        }
        out
    }
}
