//! How a watch begins in the cache, and begins again.

use super::terms::Terms;
use crate::grpc::call::Error;
use crate::grpc::pb::v1::reset;
use crate::reads::plan::Freshness;
use crate::reads::{ForwardReason, OpenWatch, Reads, Refusal, WatchFrom, WatchTerms};

pub(super) type Opened = Result<OpenWatch, Refusal>;

/// The start of a watch.
pub(super) struct Begun {
    pub(super) opened: OpenWatch,
    pub(super) resumed: bool,
    pub(super) reset: Option<reset::Reason>,
}

pub(super) async fn first(reads: &Reads, terms: &Terms) -> Result<Begun, Error> {
    let refused = |refusal| Error::refusal(&terms.selection.gvr, refusal);
    let from = terms.in_cache.from;
    match (open(reads, terms, from).await, from) {
        (Ok(opened), from) => Ok(Begun { opened, resumed: matches!(from, WatchFrom::After(_)), reset: None }),
        // If the watch cannot resume, start with a new snapshot.
        (Err(refusal), WatchFrom::After(_)) => {
            let reset = Some(unbridged(&refusal).ok_or_else(|| refused(refusal))?);
            let opened = open(reads, terms, WatchFrom::State(Freshness::Any)).await.map_err(refused)?;
            Ok(Begun { opened, resumed: false, reset })
        }
        (Err(refusal), WatchFrom::State(_)) => Err(refused(refusal)),
    }
}

pub(super) async fn open(reads: &Reads, terms: &Terms, from: WatchFrom) -> Opened {
    reads.open_watch(&terms.selection, WatchTerms { from, ..terms.in_cache }).await
}

/// The reset reason, if a new snapshot is all that is needed to continue the watch.
fn unbridged(refusal: &Refusal) -> Option<reset::Reason> {
    match refusal {
        Refusal::Expired(_) | Refusal::NotServed(ForwardReason::OutsideWindow) => Some(reset::Reason::Expired),
        Refusal::TooLarge(_) => Some(reset::Reason::StoreRewound),
        _ => None,
    }
}

/// Whether the read may succeed soon.
pub(super) fn is_passing(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NotServed(ForwardReason::NotSynced | ForwardReason::NotFresh)
            | Refusal::Unreachable(_)
            | Refusal::Stale(_)
    ) || matches!(refusal, Refusal::Refused(status) if status.code == 429)
}
