//! An HTTP/1.1 client that says exactly what it is told and hides nothing of what it hears: the request target goes out
//! as it stands, and the framing of the answer is part of the answer.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

pub(crate) use super::compare::exchange::{Answer, Ask, End, Framing};
use super::http2::Http2;
use super::support::client;

/// Connections kept for the next request at most.
const IDLE: usize = 64;
/// A head is longer than this only from a server gone mad.
const HEAD: usize = 1 << 20;

/// An answer whose body is still to come.
pub(crate) struct Response {
    pub head: Answer,
    left: Left,
    connection: Option<Connection>,
    home: Endpoint,
}

/// A server, and who we are to it. Cloning shares its connections.
#[derive(Clone)]
pub(crate) struct Endpoint {
    inner: Arc<Inner>,
}

struct Inner {
    /// As it was given.
    url: String,
    authority: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token: Option<String>,
    idle: Mutex<Vec<Connection>>,
    http2: Http2,
}

trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

type Connection = BufReader<Box<dyn Duplex>>;

/// What of a body is still to be read.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    Bytes(u64),
    Chunks,
    UntilClose,
}

// === impl Endpoint ===

impl Endpoint {
    /// `ca` and the pair of client certificate and key are files in PEM. Fails on a URL that is none.
    pub(crate) fn new(
        url: &str,
        ca: Option<&Path>,
        token: Option<&str>,
        certificate: Option<(&Path, &Path)>,
    ) -> Result<Self, String> {
        let (scheme, authority) = url.split_once("://").ok_or_else(|| format!("{url} is no URL"))?;
        let authority = authority.trim_end_matches('/').to_owned();
        let http2 = Http2::new(url.trim_end_matches('/'), trust(ca, certificate), token);
        let tls = match scheme {
            "http" => None,
            "https" => {
                let host = authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host).map_err(|error| format!("{url}: {error}"))?;
                Some((TlsConnector::from(Arc::new(trust(ca, certificate))), name))
            }
            _ => return Err(format!("{url}: neither http nor https")),
        };
        let authority = if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            authority
        } else {
            format!("{authority}:{}", if tls.is_some() { 443 } else { 80 })
        };
        let (url, token) = (url.trim_end_matches('/').to_owned(), token.map(str::to_owned));
        Ok(Self { inner: Arc::new(Inner { url, authority, tls, token, idle: Mutex::default(), http2 }) })
    }

    pub(crate) fn url(&self) -> &str {
        &self.inner.url
    }

    /// What `Host` says.
    pub(crate) fn authority(&self) -> &str {
        &self.inner.authority
    }

    /// The same server over HTTP/2.
    pub(crate) fn http2(&self) -> &Http2 {
        &self.inner.http2
    }

    /// Sends a request and reads the head of its answer.
    pub(crate) async fn open(&self, ask: &Ask) -> io::Result<Response> {
        // A connection that was kept may have been closed meanwhile: then it answers nothing at all.
        while let Some(mut kept) = self.kept() {
            match self.exchange(&mut kept, ask).await {
                Ok(head) => return Ok(self.response(head, ask, kept)),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                Err(_) => {}
            }
        }
        let mut fresh = self.connect().await?;
        let head = self.exchange(&mut fresh, ask).await?;
        Ok(self.response(head, ask, fresh))
    }

    /// Sends a request and reads its whole answer; what is not there when `bound` is over is not waited for.
    pub(crate) async fn ask(&self, ask: &Ask, bound: Duration) -> io::Result<Answer> {
        let deadline = Instant::now() + bound;
        match timeout_at(deadline, self.open(ask)).await {
            Ok(response) => Ok(response?.whole(deadline).await),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer at all")),
        }
    }

    fn kept(&self) -> Option<Connection> {
        self.inner.idle.lock().pop()
    }

    async fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect(&self.inner.authority).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Duplex> = match &self.inner.tls {
            None => Box::new(stream),
            Some((connector, name)) => Box::new(connector.connect(name.clone(), stream).await?),
        };
        Ok(BufReader::new(stream))
    }

    async fn exchange(&self, connection: &mut Connection, ask: &Ask) -> io::Result<Answer> {
        let mut text = format!("{} {} HTTP/1.1\r\n", ask.method, ask.target);
        if !ask.has("host") {
            text.push_str(&format!("Host: {}\r\n", self.inner.authority));
        }
        if let Some(token) = self.inner.token.as_ref().filter(|_| !ask.has("authorization")) {
            text.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        if !ask.has("user-agent") {
            text.push_str("User-Agent: differential\r\n");
        }
        for (name, value) in &ask.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = ask.body.as_ref().filter(|_| !ask.has("content-length")) {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        text.push_str(ask.body.as_deref().unwrap_or_default());
        connection.write_all(text.as_bytes()).await?;
        connection.flush().await?;
        head(connection).await
    }

    fn response(&self, mut head: Answer, ask: &Ask, connection: Connection) -> Response {
        let told = head.header("content-length").and_then(|length| length.parse().ok());
        let (framing, left) = if head.status == 101 {
            (Framing::Close, Left::UntilClose)
        } else if head.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            (Framing::Chunked, if ask.method == "HEAD" { Left::Nothing } else { Left::Chunks })
        } else if let Some(length) = told {
            (Framing::Length(length), if ask.method == "HEAD" { Left::Nothing } else { Left::Bytes(length) })
        } else if ask.method == "HEAD" || matches!(head.status, 204 | 304) {
            (Framing::Empty, Left::Nothing)
        } else {
            (Framing::Close, Left::UntilClose)
        };
        head.framing = framing;
        Response { head, left, connection: Some(connection), home: self.clone() }
    }
}

// === impl Response ===

impl Response {
    /// More of the body, at most 64 KiB; `None` at its end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "cut");
        match self.left {
            Left::Nothing | Left::Bytes(0) => {
                self.give_back();
                Ok(None)
            }
            Left::Bytes(left) => {
                let mut piece = vec![0; usize::try_from(left.min(1 << 16)).unwrap_or(1 << 16)];
                let read = connection.read(&mut piece).await?;
                if read == 0 {
                    return Err(cut());
                }
                piece.truncate(read);
                self.left = Left::Bytes(left - read as u64);
                Ok(Some(piece))
            }
            Left::Chunks => {
                let mut line = String::new();
                if connection.read_line(&mut line).await? == 0 {
                    return Err(cut());
                }
                let size = usize::from_str_radix(line.trim_end().split(';').next().unwrap_or_default(), 16)
                    .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("a chunk of size {line:?}")))?;
                let mut piece = vec![0; size];
                connection.read_exact(&mut piece).await?;
                connection.read_line(&mut String::new()).await?;
                if size == 0 {
                    self.give_back();
                    return Ok(None);
                }
                Ok(Some(piece))
            }
            Left::UntilClose => {
                let mut piece = vec![0; 1 << 16];
                let read = connection.read(&mut piece).await?;
                piece.truncate(read);
                Ok((read > 0).then_some(piece))
            }
        }
    }

    /// The rest of it, or what there is of it by then.
    pub(crate) async fn whole(mut self, deadline: Instant) -> Answer {
        let mut body = Vec::new();
        let end = loop {
            match timeout_at(deadline, self.next()).await {
                Err(_) => break End::Open,
                Ok(Err(_)) => break End::Cut,
                Ok(Ok(None)) => break End::Clean,
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
            }
        };
        Answer { body, end, ..self.head }
    }

    fn give_back(&mut self) {
        let closes = self.head.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if let Some(connection) = self.connection.take().filter(|_| !closes) {
            let mut idle = self.home.inner.idle.lock();
            if idle.len() < IDLE {
                idle.push(connection);
            }
        }
    }
}

/// The head of an answer, whose framing is still to be told.
async fn head(connection: &mut Connection) -> io::Result<Answer> {
    let mut line = Vec::new();
    (&mut *connection).take(HEAD as u64).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed without an answer"));
    }
    let first = String::from_utf8_lossy(&line).trim_end().to_owned();
    let mut words = first.splitn(3, ' ');
    let (_, status) = (words.next(), words.next().and_then(|status| status.parse().ok()));
    let status = status.ok_or_else(|| bad(&first))?;
    let reason = words.next().unwrap_or_default().to_owned();
    let headers = headers(connection).await?;
    Ok(Answer { status, reason, headers, framing: Framing::Empty, body: Vec::new(), end: End::Open })
}

/// The rest of a head. Names are in lower case.
pub(super) async fn headers(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Vec<(String, String)>> {
    let (mut headers, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        (&mut *from).take(HEAD as u64).read_until(b'\n', &mut line).await?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Ok(headers);
        }
        let (name, value) = text.split_once(':').ok_or_else(|| bad(text))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn bad(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no head: {line:?}"))
}

/// # Panics
/// A file cannot be read.
fn trust(ca: Option<&Path>, certificate: Option<(&Path, &Path)>) -> rustls::ClientConfig {
    let trusting = client::trust(ca);
    let Some((chain, key)) = certificate else { return trusting.with_no_client_auth() };
    let chain = CertificateDer::pem_file_iter(chain).unwrap().map(Result::unwrap).collect();
    trusting.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
}
