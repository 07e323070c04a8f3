//! Requests as the programs of the field send them.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::response::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::answers::{Answer, Answers, Question};
use super::client::{Connection, Protocol, Target};

/// A program: how it speaks, and what it says of itself in every request.
#[derive(Debug)]
pub(crate) struct Program {
    /// Over TLS; over a plain connection all of them speak HTTP/1.1.
    protocol: Protocol,
    headers: &'static [(&'static str, &'static str)],
}

pub(crate) const KUBECTL: Program = Program {
    protocol: Protocol::Http2,
    headers: &[
        ("user-agent", "kubectl/v1.36.3 (linux/amd64) kubernetes/f9f9b2d"),
        ("accept-encoding", "gzip"),
        ("kubectl-command", "kubectl get"),
        ("kubectl-session", "5a2f5e0e-6f3c-4a3f-8f0c-0f7d5f2f4b1e"),
    ],
};
pub(crate) const PYTHON: Program = Program {
    protocol: Protocol::Http1,
    headers: &[("user-agent", "OpenAPI-Generator/37.0.2/python"), ("accept-encoding", "identity")],
};
pub(crate) const CURL: Program = Program { protocol: Protocol::Http2, headers: &[("user-agent", "curl/8.14.1")] };
pub(crate) const HELM: Program =
    Program { protocol: Protocol::Http2, headers: &[("user-agent", "Helm/3.19.0"), ("accept-encoding", "gzip")] };
pub(crate) const CONTROLLER: Program = Program {
    protocol: Protocol::Http2,
    headers: &[("user-agent", "manager/v0.0.0 (linux/amd64) kubernetes/$Format"), ("accept-encoding", "gzip")],
};
pub(crate) const K9S: Program = Program {
    protocol: Protocol::Http2,
    headers: &[("user-agent", "k9s/v0.0.0 (linux/amd64) kubernetes/$Format"), ("accept-encoding", "gzip")],
};

/// kr8s and others in Python.
pub(crate) const HTTPX: Program = Program {
    protocol: Protocol::Http1,
    headers: &[("user-agent", "python-httpx/0.28.1"), ("accept-encoding", "gzip, deflate")],
};
pub(crate) const DESCHEDULER: Program =
    Program { protocol: Protocol::Http2, headers: &[("user-agent", "descheduler"), ("accept-encoding", "gzip")] };

pub(crate) const JSON: &str = "application/json";
pub(crate) const ANY: &str = "*/*";
pub(crate) const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf,application/json";
pub(crate) const DISCOVERY: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

/// Names alone, as the namespace controller asks for them.
pub(crate) const METADATA: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A server, and what it has answered.
pub(crate) struct Side {
    pub(crate) target: Target,
    pub(crate) answers: Answers,
}

/// A program with its connection to a server.
pub(crate) struct Session {
    side: Arc<Side>,
    program: &'static Program,
    connection: Connection,
}

// === impl Session ===

impl Session {
    pub(crate) async fn open(side: &Arc<Side>, program: &'static Program) -> anyhow::Result<Self> {
        let protocol = if side.target.ca.is_some() { program.protocol } else { Protocol::Http1 };
        let connection = side.target.connect(protocol).await?;
        Ok(Self { side: side.clone(), program, connection })
    }

    /// One more user of the same HTTP/2 connection, or another HTTP/1.1 connection.
    async fn another(&self) -> anyhow::Result<Self> {
        match self.connection.share() {
            Ok(connection) => Ok(Self { side: self.side.clone(), program: self.program, connection }),
            Err(_) => Self::open(&self.side, self.program).await,
        }
    }

    /// A read whose answer is noted; it has to succeed.
    pub(crate) async fn get(&mut self, path: &str, accept: &'static str) -> anyhow::Result<Bytes> {
        let (status, body) = self.ask(path, accept).await?;
        ensure!(status.is_success(), "{path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// A read that may find nothing.
    pub(crate) async fn ask(&mut self, path: &str, accept: &'static str) -> anyhow::Result<(StatusCode, Bytes)> {
        let (head, sent) = self.exchange(Method::GET, path, &[("accept", accept)], String::new()).await?;
        let question = Question { program: self.program, path: path.to_owned(), accept };
        if let Some(body) = self.side.answers.again(&question, head.status, &sent) {
            return Ok((head.status, body));
        }
        let body = unpacked(&head, sent.clone())?;
        self.side.answers.note(question, Answer { status: head.status, sent, body: body.clone() });
        Ok((head.status, body))
    }

    /// A read that has to succeed, and that nobody compares. The storage of a new type takes seconds to begin.
    pub(crate) async fn read(&mut self, path: &str, accept: &'static str) -> anyhow::Result<()> {
        for _ in 0..30 {
            let (head, sent) = self.exchange(Method::GET, path, &[("accept", accept)], String::new()).await?;
            if head.status != StatusCode::TOO_MANY_REQUESTS {
                ensure!(head.status.is_success(), "{path}: {}: {}", head.status, String::from_utf8_lossy(&sent));
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        bail!("{path}: too many requests");
    }

    /// The same, unpacked.
    pub(crate) async fn fetch(&mut self, path: &str, accept: &'static str) -> anyhow::Result<Bytes> {
        let (head, sent) = self.exchange(Method::GET, path, &[("accept", accept)], String::new()).await?;
        ensure!(head.status.is_success(), "{path}: {}: {}", head.status, String::from_utf8_lossy(&sent));
        unpacked(&head, sent)
    }

    /// A list by pages, as long as there are more.
    pub(crate) async fn pages(&mut self, path: &str, accept: &'static str) -> anyhow::Result<()> {
        let mut page = path.to_owned();
        loop {
            let body = self.get(&page, accept).await?;
            let Some(token) = continue_token(&body) else { return Ok(()) };
            page = format!("{path}&continue={token}");
        }
    }

    pub(crate) async fn write(&mut self, method: Method, path: &str, body: String) -> anyhow::Result<()> {
        self.send(method, path, &[("accept", JSON)], body).await
    }

    pub(crate) async fn patch(&mut self, path: &str, body: String) -> anyhow::Result<()> {
        let headers = [("accept", JSON), ("content-type", "application/merge-patch+json")];
        self.send(Method::PATCH, path, &headers, body).await
    }

    async fn send(&mut self, method: Method, path: &str, headers: &[(&str, &str)], body: String) -> anyhow::Result<()> {
        let (head, sent) = self.exchange(method.clone(), path, headers, body).await?;
        ensure!(head.status.is_success(), "{method} {path}: {}: {}", head.status, String::from_utf8_lossy(&sent));
        Ok(())
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> anyhow::Result<(Parts, Bytes)> {
        let headers = [self.program.headers, headers].concat();
        let response = self.connection.request(method, path, &headers, body).await?;
        let (head, body) = response.into_parts();
        Ok((head, body.collect().await?.to_bytes()))
    }

    /// An informer: everything there is, and then every change. Its stream has come to the end of the first part.
    pub(crate) async fn informer(&self, path: &str, accept: &str) -> anyhow::Result<Stream> {
        let path = format!(
            "{path}?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=500&watch=true"
        );
        let mut stream = self.watch(&path, accept).await?;
        stream.until(b"k8s.io/initial-events-end").await?;
        Ok(stream)
    }

    /// An informer without a watch-list: what is cached, in JSON, and every change from its revision on.
    pub(crate) async fn list_and_watch(&mut self, path: &str) -> anyhow::Result<(String, Stream)> {
        let list = self.fetch(&with(path, "limit=500&resourceVersion=0"), JSON).await?;
        let list: Value = serde_json::from_slice(&list)?;
        let revision = list["metadata"]["resourceVersion"].as_str().context("a list has a revision")?;
        Ok((revision.to_owned(), self.resume(path, revision).await?))
    }

    /// Every change from this revision on.
    pub(crate) async fn resume(&self, path: &str, revision: &str) -> anyhow::Result<Stream> {
        let options = format!("allowWatchBookmarks=true&resourceVersion={revision}&timeoutSeconds=500&watch=true");
        self.watch(&with(path, &options), JSON).await
    }

    async fn watch(&self, path: &str, accept: &str) -> anyhow::Result<Stream> {
        let mut session = self.another().await?;
        let headers = [session.program.headers, &[("accept", accept)]].concat();
        let response = session.connection.request(Method::GET, path, &headers, String::new()).await?;
        ensure!(response.status().is_success(), "{path}: {}", response.status());
        let compressed = response.headers().contains_key("content-encoding");
        Ok(Stream { body: response.into_body(), compressed, tail: Vec::new(), _session: session })
    }
}

/// A path with more options.
fn with(path: &str, options: &str) -> String {
    format!("{path}{}{options}", if path.contains('?') { '&' } else { '?' })
}

/// A body as it was before it was compressed.
fn unpacked(head: &Parts, sent: Bytes) -> anyhow::Result<Bytes> {
    if head.headers.get("content-encoding").is_none() {
        return Ok(sent);
    }
    let mut inflated = Vec::new();
    MultiGzDecoder::new(&*sent).read_to_end(&mut inflated)?;
    Ok(inflated.into())
}

/// The bytes of a watch.
pub(crate) struct Stream {
    body: Incoming,
    compressed: bool,
    /// The end of what was read, for a text that lies in two frames.
    tail: Vec<u8>,
    _session: Session,
}

// === impl Stream ===

impl Stream {
    /// Reads until this text has come.
    pub(crate) async fn until(&mut self, text: &[u8]) -> anyhow::Result<()> {
        ensure!(!self.compressed, "a watch is compressed");
        loop {
            let frame = self.body.frame().await.context("a watch has ended")??;
            let Some(data) = frame.data_ref() else { continue };
            self.tail.extend_from_slice(data);
            if let Some(at) = memchr::memmem::find(&self.tail, text) {
                self.tail.drain(..at + text.len());
                return Ok(());
            }
            let old = self.tail.len().saturating_sub(text.len());
            self.tail.drain(..old);
        }
    }
}

/// Of a list in JSON or as a table: its metadata stands before its items.
fn continue_token(body: &[u8]) -> Option<String> {
    const KEY: &[u8] = br#""continue":""#;
    let head = &body[..body.len().min(2_000)];
    let head = &head[..memchr::memmem::find(head, br#""items""#).unwrap_or(head.len())];
    let from = memchr::memmem::find(head, KEY)? + KEY.len();
    let length = memchr::memchr(b'"', &head[from..])?;
    Some(String::from_utf8_lossy(&head[from..from + length]).into_owned()).filter(|token| !token.is_empty())
}
