//! A request and its answer, as they were sent.

/// A request as it is sent: the target may be anything.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
}

/// How the length of a body was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By `Content-Length`.
    Length(u64),
    Chunked,
    /// By the end of the connection.
    Close,
    /// There can be none.
    Empty,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Clean,
    /// The connection broke before.
    Cut,
    /// It had not when time was up.
    Open,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub reason: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    pub framing: Framing,
    pub body: Vec<u8>,
    pub end: End,
}

// === impl Ask ===

impl Ask {
    pub(crate) fn get(target: impl Into<String>) -> Self {
        Self::method("GET", target)
    }

    pub(crate) fn method(method: &str, target: impl Into<String>) -> Self {
        Self { method: method.to_owned(), target: target.into(), headers: Vec::new(), body: None }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, content_type: &str, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self.header("content-type", content_type)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Its body as JSON; null if that is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}
