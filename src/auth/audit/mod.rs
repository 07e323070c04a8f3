//! Who read what: one line for each read that was answered here, in the apiserver's own form. The apiserver does not see
//! these reads, so its audit log does not have them.

mod event;
mod policy;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use self::event::{Event, ResponseStatus};
pub use self::policy::Policy;
use super::attributes::Attributes;
use super::metrics::AuthMetrics;
use super::user::UserInfo;
use crate::lifecycle::Fatal;
use crate::meta::Status;
use crate::telemetry::lines::{Lines, LinesError, LinesTo};

/// The user name of a client that was not asked who it is. The apiserver used it for its former insecure port.
const UNKNOWN: &str = "system:unsecured";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditConfig {
    pub sink: LinesTo,
    /// What is written; without it everything.
    pub policy: Policy,
}

/// The audit log. Cloning shares it.
#[derive(Clone)]
pub struct Audit {
    /// `None`: nothing is written.
    inner: Option<Arc<Inner>>,
}

struct Inner {
    policy: Policy,
    lines: Lines,
}

/// One request, as the log tells of it.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub audit_id: String,
    /// As it was sent.
    pub uri: String,
    pub attributes: &'a Attributes,
    /// `None`: nobody asked.
    pub user: Option<&'a UserInfo>,
    /// As whom the user asks, if as somebody else.
    pub impersonated: Option<&'a UserInfo>,
    pub source: Option<IpAddr>,
    pub user_agent: String,
}

/// A request that is being answered. Of a stream that was started, the end is written when this is dropped.
pub struct Entry {
    inner: Arc<Inner>,
    event: Event,
    omits: Vec<policy::Stage>,
    started: bool,
}

// === impl Audit ===

impl Audit {
    pub fn off() -> Self {
        Self { inner: None }
    }

    /// Opens the log, and starts the task that writes it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn start(config: &AuditConfig, metrics: &Arc<AuthMetrics>, fatal: &Fatal) -> Result<Self, LinesError> {
        let lines = Lines::start("audit", &config.sink, Arc::clone(&metrics.audit), fatal)?;
        Ok(Self { inner: Some(Arc::new(Inner { policy: config.policy.clone(), lines })) })
    }

    /// Begins to tell of a request; `None` where nothing is to be told. What there is to tell is only put together where
    /// anything is.
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
    /// The answer was given whole.
    pub fn complete(mut self, code: u16) {
        self.event.response_status = Some(ResponseStatus::ok(code));
        self.write(policy::Stage::ResponseComplete);
    }

    /// The request was refused.
    pub fn refuse(mut self, status: &Status) {
        self.event.response_status = Some(ResponseStatus::of(status));
        if status.code == 403 {
            self.event.forbid();
        }
        self.write(policy::Stage::ResponseComplete);
    }

    /// The head of a stream was sent. What is dropped later tells of its end.
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
