//! Why a read is not served, for both interfaces (REST and gRPC).

use std::time::Duration;

use crate::cache::WatchError;
use crate::informer::NoCoverage;
use crate::meta::{Damaged, ResourceVersion, Status, errors};

use super::{ForwardReason, Outcome, refusal};

/// A read that ends before an answer: forwarded or refused.
pub(super) enum Unserved {
    Forward(ForwardReason),
    Refuse(Box<Status>),
    /// The store itself has not reached the requested revision.
    TooLarge {
        want: ResourceVersion,
    },
    /// The definition of the resource has changed since the request was resolved.
    Outdated,
    /// The revision is older than the window. Contains the Status that the apiserver returns in this case.
    Expired(Box<Status>),
}

/// Why a typed read is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The selection is invalid. Selector errors use the apiserver's own messages.
    Invalid(String),
    /// Discovery is complete, and does not have the resource.
    UnknownResource,
    /// Discovery is not available, or the part of it that could have the resource.
    Unreachable(String),
    /// The REST side would forward this read.
    NotServed(ForwardReason),
    /// The revision is older than the window.
    Expired(Box<Status>),
    /// The store itself has not reached the revision: it was restored, or it never had that revision.
    TooLarge(ResourceVersion),
    /// No data from the apiserver arrived for this long.
    Stale(Duration),
    Refused(Box<Status>),
}

// === impl Unserved ===

impl From<ForwardReason> for Unserved {
    fn from(reason: ForwardReason) -> Self {
        Self::Forward(reason)
    }
}

impl<T> From<Unserved> for Outcome<T> {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::Forward(reason) => Self::Forward(reason),
            // The apiserver waits for the revision as long as it sees fit, and writes its own refusal.
            Unserved::TooLarge { .. } => Self::Forward(ForwardReason::NotFresh),
            Unserved::Expired(_) => Self::Forward(ForwardReason::OutsideWindow),
            Unserved::Outdated => Self::Forward(ForwardReason::NotSynced),
            Unserved::Refuse(status) => Self::Refuse(status),
        }
    }
}

impl From<Damaged> for Unserved {
    fn from(damaged: Damaged) -> Self {
        Self::Refuse(Box::new(errors::damaged(damaged)))
    }
}

impl From<WatchError> for Unserved {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::NotReady => ForwardReason::NotSynced.into(),
            WatchError::TooOld { rv, oldest_minus_1 } => {
                Self::Expired(Box::new(errors::expired_watch(rv.get(), oldest_minus_1.get())))
            }
        }
    }
}

impl From<NoCoverage> for ForwardReason {
    fn from(reason: NoCoverage) -> Self {
        match reason {
            NoCoverage::Excluded => Self::Excluded,
            NoCoverage::Encoding => Self::Encoding,
            NoCoverage::OutOfScope => Self::OutOfScope,
            NoCoverage::TooMany => Self::TooManyInformers,
            NoCoverage::Forbidden => Self::Forbidden,
            NoCoverage::Memory => Self::Memory,
            NoCoverage::Undecodable => Self::Undecodable,
            NoCoverage::Seldom => Self::Seldom,
            NoCoverage::Cells => Self::TableCells,
            NoCoverage::Unversioned => Self::Unversioned,
            NoCoverage::Outdated => Self::NotSynced,
        }
    }
}

// === impl Refusal ===

impl Refusal {
    /// The label in the metric of reads.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Refused(status) => refusal(status),
            Self::NotServed(ForwardReason::NotSynced) => "not_synced",
            Self::UnknownResource => "not_found",
            _ => "other",
        }
    }
}

impl From<ForwardReason> for Refusal {
    fn from(reason: ForwardReason) -> Self {
        Self::NotServed(reason)
    }
}

impl From<Unserved> for Refusal {
    fn from(unserved: Unserved) -> Self {
        match unserved {
            Unserved::Forward(reason) => Self::NotServed(reason),
            Unserved::Refuse(status) => Self::Refused(status),
            Unserved::TooLarge { want } => Self::TooLarge(want),
            Unserved::Expired(status) => Self::Expired(status),
            // The client is told to try again.
            Unserved::Outdated => Self::NotServed(ForwardReason::NotSynced),
        }
    }
}
