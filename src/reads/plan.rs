//! The decision table of the read path: what a request asks of the cache, before any cache is looked at.
//!
//! The rules are the kube-apiserver's own (its delegator, cacher and watch handler); what they leave to etcd is
//! forwarded.

use crate::meta::{ListOptions, ListRevision, ResourceVersion};

use super::{ConsistentReads, ForwardReason};
pub use crate::informer::Freshness;

/// Which state a list is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest state, once it is this fresh. The answer carries the cache's revision.
    Latest(Freshness),
    /// The state at exactly this revision. The answer carries this number.
    Exact(ResourceVersion),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlan {
    pub state: At,
    /// Objects of a page; `None` for a complete list.
    pub limit: Option<usize>,
    /// The last key of the page before, relative to the request's scope with its leading slash.
    pub after: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchPlan {
    /// Synthetic ADDED events for the state, then what follows it.
    State { freshness: Freshness, initial_end: bool },
    /// History after this revision, then what follows it.
    After(ResourceVersion),
    /// Only what comes from now on; `consistent` asks the store for its revision first.
    Now { consistent: bool },
}

/// The apiserver counts in nanoseconds of 63 bits.
const LONGEST_SECONDS: i64 = i64::MAX / 1_000_000_000;

/// `uncached` resources (events) are always read from etcd by the apiserver, which never ignores the limit.
pub fn list(options: &ListOptions, mode: ConsistentReads, uncached: bool) -> Result<ListPlan, ForwardReason> {
    let limit = usize::try_from(options.limit).ok().filter(|&limit| limit > 0);
    let newest = |freshness| Ok(ListPlan { state: At::Latest(freshness), limit, after: None });
    match options.list_revision().map_err(|_| ForwardReason::Invalid)? {
        ListRevision::MostRecent => match mode {
            ConsistentReads::Upstream => Err(ForwardReason::Consistent),
            ConsistentReads::Auto | ConsistentReads::Bounded | ConsistentReads::Probe => newest(Freshness::Consistent),
            ConsistentReads::Cache => newest(Freshness::Any),
        },
        ListRevision::Any if uncached => newest(Freshness::Any),
        // The apiserver's cache ignores the limit here, and clients rely on the complete answer.
        ListRevision::Any => Ok(ListPlan { state: At::Latest(Freshness::Any), limit: None, after: None }),
        ListRevision::NotOlderThan(rv) => newest(Freshness::NotOlderThan(rv)),
        ListRevision::Exact(rv) => Ok(ListPlan { state: At::Exact(rv), limit, after: None }),
        // The apiserver takes no notice of the limit then if its cache has the page, and honours it if etcd has.
        ListRevision::Continue(_) if limit.is_some() && !options.resource_version.is_empty() && !uncached => {
            Err(ForwardReason::Unsupported)
        }
        ListRevision::Continue(token) => match u64::try_from(token.rv) {
            Ok(rv) => Ok(ListPlan { state: At::Exact(ResourceVersion(rv)), limit, after: Some(token.start) }),
            // The newest state from a key on.
            Err(_) => Err(ForwardReason::Consistent),
        },
        ListRevision::Unusual => Err(ForwardReason::Invalid),
    }
}

/// A get has no `resourceVersionMatch`: the apiserver ignores it.
pub fn get(options: &ListOptions, mode: ConsistentReads) -> Result<Freshness, ForwardReason> {
    match parse_rv(&options.resource_version)? {
        Some(rv) => Ok(Freshness::NotOlderThan(rv)),
        None if !options.resource_version.is_empty() => Ok(Freshness::Any),
        None => match mode {
            ConsistentReads::Upstream => Err(ForwardReason::Consistent),
            ConsistentReads::Auto | ConsistentReads::Bounded | ConsistentReads::Probe => Ok(Freshness::Consistent),
            ConsistentReads::Cache => Ok(Freshness::Any),
        },
    }
}

/// `options` are defaulted and validated.
pub fn watch(options: &ListOptions, mode: ConsistentReads) -> Result<WatchPlan, ForwardReason> {
    // A negative timeout has expired before it began, and one that is too long for Go's durations is as good as
    // negative; what the apiserver then sends is a race of its own.
    if options.timeout_seconds.is_some_and(|seconds| !(0..=LONGEST_SECONDS).contains(&seconds)) {
        return Err(ForwardReason::Unsupported);
    }
    let rv = parse_rv(&options.resource_version)?;
    let unset = options.resource_version.is_empty();
    let initial_end = options.allow_watch_bookmarks;
    match (options.send_initial_events, rv) {
        (Some(true), Some(rv)) => Ok(WatchPlan::State { freshness: Freshness::NotOlderThan(rv), initial_end }),
        (Some(true), None) if unset => match mode {
            ConsistentReads::Upstream => Err(ForwardReason::Consistent),
            ConsistentReads::Auto | ConsistentReads::Bounded | ConsistentReads::Probe => {
                Ok(WatchPlan::State { freshness: Freshness::Consistent, initial_end })
            }
            ConsistentReads::Cache => Ok(WatchPlan::State { freshness: Freshness::Any, initial_end }),
        },
        (Some(true), None) => Ok(WatchPlan::State { freshness: Freshness::Any, initial_end }),
        (_, Some(rv)) => Ok(WatchPlan::After(rv)),
        (Some(false), None) => Ok(WatchPlan::Now { consistent: unset && mode != ConsistentReads::Cache }),
        // Only the legacy path comes here without initial events being decided: state without a wait, and no marker.
        (None, None) => Ok(WatchPlan::State { freshness: Freshness::Any, initial_end: false }),
    }
}

/// "" and "0" (and "00") name no revision: `None`.
fn parse_rv(text: &str) -> Result<Option<ResourceVersion>, ForwardReason> {
    if text.is_empty() {
        return Ok(None);
    }
    match ResourceVersion::parse(text) {
        // "00" parses to zero but is not the literal the apiserver compares with: its own business.
        Some(ResourceVersion::ZERO) if text != "0" => Err(ForwardReason::Invalid),
        Some(ResourceVersion::ZERO) => Ok(None),
        // Etcd counts in 63 bits; what it makes of more is its own business, too.
        Some(rv) if i64::try_from(rv.0).is_err() => Err(ForwardReason::Invalid),
        Some(rv) => Ok(Some(rv)),
        None => Err(ForwardReason::Invalid),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
