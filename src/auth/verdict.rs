//! The decision about a request, and the right that it grants.

use std::fmt;
use std::sync::Arc;

use super::authenticator::Source;
use super::lease::{Held, Lease};
use super::user::UserInfo;
use crate::meta::Status;

/// The user that makes a request.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// The user that the credentials belong to.
    pub user: Arc<UserInfo>,
    /// The user that is impersonated, if any.
    pub impersonated: Option<Arc<UserInfo>>,
}

/// The decision about a request.
#[derive(Debug)]
pub enum Verdict {
    /// The request may be answered from a cache.
    Allowed(Grant),
    /// The apiserver would refuse the request with this Status. `subject`: the user, if known.
    Refused { status: Box<Status>, subject: Option<Subject> },
    /// Only the apiserver can decide. The request is forwarded with the client's own credentials and none of ours. A
    /// caller that cannot forward refuses with this Status.
    Forward(Box<Status>),
}

/// The right to one read, for as long as it lasts.
pub struct Grant {
    /// Empty for trusted clients. Otherwise the first entry is the read itself, and all entries are needed.
    pub(super) held: Vec<Held>,
}

// === impl Grant ===

impl Grant {
    /// The user that the credentials belong to. `None` for a trusted client, whose user is not known.
    pub fn user(&self) -> Option<&UserInfo> {
        self.held.first().map(|held| &*held.user)
    }

    /// The user that has the right. `None` for a trusted client, whose user is not known.
    pub fn subject(&self) -> Option<Subject> {
        let of = |held: &Held| Subject { user: Arc::clone(&held.user), impersonated: held.impersonated.clone() };
        self.held.first().map(of)
    }

    /// Whether the read could be forwarded to the apiserver with the client's own credentials.
    pub fn may_forward(&self) -> bool {
        self.held.iter().all(|held| matches!(held.source, Source::Token(_)))
    }

    /// Whether the right was confirmed before the apiserver went away, and is only kept since then.
    pub fn is_kept(&self) -> bool {
        self.held.iter().any(Held::is_kept)
    }

    /// The lease of a stream. It must be polled while the stream is open.
    pub fn lease(self) -> Lease {
        Lease::all(self.held.into_iter().map(Lease::of))
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("user", &self.user().map(|user| &user.username)).finish()
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
