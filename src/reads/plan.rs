//! The decision table of the read path: what a request requires of the cache, before any cache is used.
//!
//! The rules are those of the kube-apiserver (its delegator, cacher and watch handler). Reads that it serves from etcd
//! are forwarded.

use crate::meta::{ListOptions, ListRevision, ResourceVersion};

use super::{ConsistentReads, ForwardReason};
pub use crate::informer::Freshness;

/// Which state a list is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest state, once it is this fresh. The answer carries the cache's revision.
    Latest(Freshness),
    /// The state at exactly this revision. The answer carries this revision.
    Exact(ResourceVersion),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPlan {
    pub state: At,
    /// Maximum number of objects of a page; `None` for a complete list.
    pub limit: Option<usize>,
    /// The last key of the previous page, relative to the request's scope, with its leading slash.
    pub after: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchPlan {
    /// Synthetic ADDED events for the state, then the events after it.
    State { freshness: Freshness, initial_end: bool },
    /// The history after this revision, then new events.
    After(ResourceVersion),
    /// Only new events; with `consistent`, the store is asked for its revision first.
    Now { consistent: bool },
}

/// The apiserver stores durations as nanoseconds in 63 bits.
const LONGEST_SECONDS: i64 = i64::MAX / 1_000_000_000;

/// For `uncached` resources (events), the apiserver always reads from etcd and never ignores the limit.
pub fn list(options: &ListOptions, mode: ConsistentReads, uncached: bool) -> Result<ListPlan, ForwardReason> {
    let limit = usize::try_from(options.limit).ok().filter(|&limit| limit > 0);
    let latest = |freshness| Ok(ListPlan { state: At::Latest(freshness), limit, after: None });
    match options.list_revision().map_err(|_| ForwardReason::Invalid)? {
        ListRevision::MostRecent => latest(newest(mode)?),
        ListRevision::Any if uncached => latest(Freshness::Any),
        // The apiserver's cache ignores the limit here, and clients rely on the complete answer.
        ListRevision::Any => Ok(ListPlan { state: At::Latest(Freshness::Any), limit: None, after: None }),
        ListRevision::NotOlderThan(rv) => latest(Freshness::NotOlderThan(rv)),
        ListRevision::Exact(rv) => Ok(ListPlan { state: At::Exact(rv), limit, after: None }),
        // The apiserver ignores the limit in this case if its cache has the page, and uses it if etcd has.
        ListRevision::Continue(_) if limit.is_some() && !options.resource_version.is_empty() && !uncached => {
            Err(ForwardReason::Unsupported)
        }
        ListRevision::Continue(token) => match u64::try_from(token.rv) {
            Ok(rv) => Ok(ListPlan { state: At::Exact(ResourceVersion(rv)), limit, after: Some(token.start) }),
            // The newest state, starting at a key.
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
        None => newest(mode),
    }
}

/// How fresh the answer to a read of the newest state must be.
fn newest(mode: ConsistentReads) -> Result<Freshness, ForwardReason> {
    match mode {
        ConsistentReads::Upstream => Err(ForwardReason::Consistent),
        ConsistentReads::Auto | ConsistentReads::Bounded(_) | ConsistentReads::Probe => Ok(Freshness::Consistent),
        ConsistentReads::Cache => Ok(Freshness::Any),
    }
}

/// `options` are defaulted and validated.
pub fn watch(options: &ListOptions, mode: ConsistentReads) -> Result<WatchPlan, ForwardReason> {
    // A negative timeout is over before it begins, and one that is too long for Go's durations has the same effect.
    // What the apiserver sends then depends on a race.
    if options.timeout_seconds.is_some_and(|seconds| !(0..=LONGEST_SECONDS).contains(&seconds)) {
        return Err(ForwardReason::Unsupported);
    }
    let rv = parse_rv(&options.resource_version)?;
    let unset = options.resource_version.is_empty();
    let initial_end = options.allow_watch_bookmarks;
    match (options.send_initial_events, rv) {
        (Some(true), Some(rv)) => Ok(WatchPlan::State { freshness: Freshness::NotOlderThan(rv), initial_end }),
        (Some(true), None) if unset => Ok(WatchPlan::State { freshness: newest(mode)?, initial_end }),
        (Some(true), None) => Ok(WatchPlan::State { freshness: Freshness::Any, initial_end }),
        (_, Some(rv)) => Ok(WatchPlan::After(rv)),
        (Some(false), None) => Ok(WatchPlan::Now { consistent: unset && mode != ConsistentReads::Cache }),
        // Only the legacy path gets here without a decision about initial events: the state without a wait, and no
        // marker.
        (None, None) => Ok(WatchPlan::State { freshness: Freshness::Any, initial_end: false }),
    }
}

/// "" and "0" (and "00") are not revisions: `None`.
fn parse_rv(text: &str) -> Result<Option<ResourceVersion>, ForwardReason> {
    if text.is_empty() {
        return Ok(None);
    }
    match ResourceVersion::parse(text) {
        // "00" parses to zero but is not the literal that the apiserver compares with, so the apiserver must decide.
        Some(ResourceVersion::ZERO) if text != "0" => Err(ForwardReason::Invalid),
        Some(ResourceVersion::ZERO) => Ok(None),
        // Etcd counts in 63 bits; the apiserver must decide what a larger number means.
        Some(rv) if i64::try_from(rv.0).is_err() => Err(ForwardReason::Invalid),
        Some(rv) => Ok(Some(rv)),
        None => Err(ForwardReason::Invalid),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
