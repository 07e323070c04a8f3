//! The access log: one line per request, with the client, the request, the answer and the duration. It contains no
//! credentials.

use std::sync::Arc;

use http::{Method, Request, Uri, Version};
use jiff::Timestamp;
use serde::Serialize;

use super::door::Connection;
use super::record::program;
use crate::lifecycle::Fatal;
use crate::lifecycle::signals::Hangups;
use crate::meta::RequestInfo;
use crate::telemetry::lines::{LineCounts, Lines, LinesError, LinesTo};

/// The access log. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AccessLog {
    /// `None`: nothing is logged.
    lines: Option<Arc<Lines>>,
}

/// What is known about a request so far.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    time: String,
    client: String,
    /// Empty if the client was not authenticated.
    pub(super) user: String,
    /// Whether a decision allowed the request that was kept because the apiserver is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept: Option<bool>,
    program: String,
    protocol: &'static str,
    method: String,
    path: String,
    /// The HTTP status; 0 if the client disconnected before the answer.
    pub(super) status: u16,
    /// The gRPC status, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<u16>,
    pub(super) plan: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: &'static str,
    /// Bytes of the body, as sent.
    pub(super) bytes: u64,
    /// Until the end of the response.
    pub(super) duration_ms: f64,
}

/// The longest request target that is logged. A client can send any length.
const LONGEST: usize = 1024;

/// The query parameters that are logged: parameters of the Kubernetes API that hold no credentials. Other parameters
/// are left out, because a client can put anything into them.
const SHOWN: &[&str] = &[
    "allowWatchBookmarks",
    "container",
    "continue",
    "dryRun",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "follow",
    "force",
    "gracePeriodSeconds",
    "includeObject",
    "labelSelector",
    "limit",
    "limitBytes",
    "pretty",
    "previous",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "sinceSeconds",
    "sinceTime",
    "tailLines",
    "timeout",
    "timeoutSeconds",
    "timestamps",
    "watch",
];

// === impl AccessLog ===

impl AccessLog {
    pub fn off() -> Self {
        Self::default()
    }

    /// Opens the log and starts the task that writes it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn start(to: &LinesTo, counts: Arc<LineCounts>, hangups: &Hangups, fatal: &Fatal) -> Result<Self, LinesError> {
        Ok(Self { lines: Some(Arc::new(Lines::start("access", to, counts, hangups, fatal)?)) })
    }

    pub(super) fn begin<B>(&self, request: &Request<B>, connection: &Connection, grpc: bool) -> Option<Line> {
        self.lines.as_ref()?;
        let agent = request.headers().get(http::header::USER_AGENT);
        Some(Line {
            time: format!("{:.6}", Timestamp::now()),
            client: connection.peer.map_or_else(|| "unix".to_owned(), |peer| peer.ip().to_canonical().to_string()),
            user: String::new(),
            kept: None,
            program: program(agent).to_owned(),
            protocol: match request.version() {
                _ if grpc => "gRPC",
                Version::HTTP_2 => "HTTP/2",
                _ => "HTTP/1.1",
            },
            method: cut(request.method().to_string()),
            path: target(request.method(), request.uri()),
            status: 0,
            code: None,
            plan: "",
            reason: "",
            bytes: 0,
            duration_ms: 0.0,
        })
    }

    pub(super) fn write(&self, line: &Line) {
        if let Some(lines) = &self.lines {
            lines.write(line);
        }
    }
}

/// The path, with only those query parameters that may be logged. The path behind a `proxy` subresource is left out,
/// because it belongs to another program.
fn target(method: &Method, uri: &Uri) -> String {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let info = RequestInfo::parse(method.as_str(), path, query);
    if info.is_resource && info.subresource == "proxy" {
        return cut(match path.find("/proxy/") {
            Some(at) => format!("{}/proxy/…", &path[..at]),
            None => path.to_owned(),
        });
    }
    let shown = |parameter: &&str| SHOWN.contains(&parameter.split('=').next().unwrap_or_default());
    let query: Vec<_> = query.split('&').filter(shown).collect();
    cut(if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) })
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_is_shown() {
        let long = format!("/{}", "x".repeat(2000));
        for (uri, shown) in [
            (
                "/api/v1/pods?limit=5&access_token=s3cret&labelSelector=a%3Db",
                "/api/v1/pods?limit=5&labelSelector=a%3Db",
            ),
            ("/api/v1/pods?access%5Ftoken=s3cret", "/api/v1/pods"),
            ("/api/v1/pods?token=s3cret&watch", "/api/v1/pods?watch"),
            ("/version?key=s3cret", "/version"),
            (
                "/api/v1/namespaces/a/pods/p/exec?command=s3cret&container=c",
                "/api/v1/namespaces/a/pods/p/exec?container=c",
            ),
            ("/api/v1/namespaces/a/services/s/proxy/s3cret?limit=s3cret", "/api/v1/namespaces/a/services/s/proxy/…"),
            ("/api/v1/namespaces/a/services/s/proxy?limit=s3cret", "/api/v1/namespaces/a/services/s/proxy"),
        ] {
            assert_eq!(target(&Method::GET, &uri.parse().unwrap()), shown);
        }
        assert_eq!(target(&Method::GET, &long.parse().unwrap()).len(), LONGEST + '…'.len_utf8());
    }
}
