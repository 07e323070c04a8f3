//! The audit log: one line for each read that was answered here, in the apiserver's format. The apiserver does not see
//! these reads, so its own audit log does not contain them.

mod event;
mod policy;

use std::fmt;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderValue, USER_AGENT};

pub use self::event::Request;
use self::event::{Event, ResponseStatus};
pub use self::policy::Policy;
use super::metrics::AuthMetrics;
use super::user::UserInfo;
use crate::lifecycle::Fatal;
use crate::lifecycle::signals::Hangups;
use crate::meta::Status;
use crate::telemetry::lines::{Lines, LinesError, LinesTo};

/// The apiserver truncates a longer user agent to this many bytes.
const MAX_TEXT: usize = 1024;

/// The user name of a client that was not authenticated. The apiserver used it for its former insecure port.
const UNKNOWN: &str = "system:unsecured";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    pub sink: LinesTo,
    /// Selects what is logged. The default logs everything.
    pub policy: Policy,
}

/// The audit log. Clones share it.
#[derive(Clone)]
pub struct Audit {
    /// `None`: nothing is logged.
    inner: Option<Arc<AuditInner>>,
}

struct AuditInner {
    policy: Policy,
    lines: Lines,
}

/// A request that is being answered. If it is a stream that was started, dropping this logs its end.
pub struct Entry {
    inner: Arc<AuditInner>,
    event: Event,
    omits: Vec<policy::Stage>,
    started: bool,
}

/// The user agent of a request as it is logged.
pub fn user_agent(headers: &HeaderMap) -> String {
    cut(headers.get(USER_AGENT).map_or(b"", HeaderValue::as_bytes))
}

/// What a client sent, as it is kept to be logged later.
pub fn cut(text: &[u8]) -> String {
    // The bytes behind the limit count in no other way than by their number.
    let text = String::from_utf8_lossy(&text[..text.len().min(2 * MAX_TEXT)]);
    if text.len() <= MAX_TEXT {
        return text.into_owned();
    }
    let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}...TRUNCATED", &text[..end])
}

// === impl Audit ===

impl Audit {
    pub fn off() -> Self {
        Self { inner: None }
    }

    /// Opens the log and starts the task that writes it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn start(
        config: &AuditConfig,
        metrics: &Arc<AuthMetrics>,
        hangups: &Hangups,
        fatal: &Fatal,
    ) -> Result<Self, LinesError> {
        let lines = Lines::start("audit", &config.sink, Arc::clone(&metrics.audit), hangups, fatal)?;
        Ok(Self { inner: Some(Arc::new(AuditInner { policy: config.policy.clone(), lines })) })
    }

    /// Begins the entry of a request; `None` if nothing is logged. `request` is called only if the audit log is on.
    pub fn begin<'a>(&self, request: impl FnOnce() -> Request<'a>) -> Option<Entry> {
        let inner = self.inner.as_ref()?;
        let request = request();
        let unknown = UserInfo { username: UNKNOWN.to_owned(), ..UserInfo::default() };
        let user = request.user.unwrap_or(&unknown);
        let omits = inner.policy.decide(user, request.attributes)?;
        Some(Entry { inner: Arc::clone(inner), event: Event::new(&request, user), omits, started: false })
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("on", &self.inner.is_some()).finish()
    }
}

// === impl Entry ===

impl Entry {
    /// Logs that the answer was complete.
    pub fn complete(mut self, code: u16) {
        self.event.response_status = Some(ResponseStatus::ok(code));
        self.write(policy::Stage::ResponseComplete);
    }

    /// Logs that the request was refused.
    pub fn refuse(mut self, status: &Status) {
        self.event.response_status = Some(ResponseStatus::of(status));
        if status.code == 403 {
            self.event.forbid();
        }
        self.write(policy::Stage::ResponseComplete);
    }

    /// Logs that the headers of a stream were sent. Dropping the returned entry logs its end.
    #[must_use]
    pub fn start(mut self) -> Self {
        self.event.response_status = Some(ResponseStatus::ok(200));
        self.write(policy::Stage::ResponseStarted);
        self.started = true;
        self
    }

    fn write(&mut self, stage: policy::Stage) {
        if !self.omits.contains(&stage) {
            self.event.at(stage);
            self.inner.lines.write(&self.event);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.started {
            self.write(policy::Stage::ResponseComplete);
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entry")
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
