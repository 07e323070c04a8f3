//! Predicts the outcome of a read without performing it: it starts no informer, does not wait, and counts nothing. It
//! asks the apiserver only for discovery and, if there is a shard selector, whether the apiserver supports it.

use crate::cache::{Floor, SnapshotError, WatchCache};
use crate::informer::NoCoverage;
use crate::meta::{Encoding, ObjectKey, Verb};

use super::list::is_narrowed;
use super::plan::{At, Freshness, WatchPlan};
use super::resolved::Resolved;
use super::shards::is_counted_otherwise;
use super::unserved::Unserved;
use super::{ForwardReason, ReadRequest, Reads, plan};

/// The predicted outcome of a read, if it were sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    pub fate: Fate,
    /// The informer whose cache the answer comes from, or would come from.
    pub informer: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Served from the cache in its present state.
    Served,
    /// The cache proves, or will prove, that there is no such object: 404.
    NotFound,
    /// Served from the cache, after this wait.
    Waits(Wait),
    Forwarded(ForwardReason),
}

/// What a served read has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No informer runs, so one is started.
    Start,
    /// The informer's first list.
    Sync,
    /// An event that the cache does not have yet.
    Revision,
    /// The proof that the cache is as fresh as the store.
    Proof,
}

/// The requirement of a read for the cache.
enum Need {
    State(Freshness),
    List(At),
    History(WatchPlan),
}

// === impl Reads ===

impl Reads {
    /// `verb` is get, list or watch.
    pub async fn explain(&self, request: &ReadRequest, verb: Verb) -> Forecast {
        let forwarded = |reason| Forecast { fate: Fate::Forwarded(reason), informer: None };
        let (mut read, need) = match self.wanted(request, verb).await {
            Ok(wanted) => wanted,
            Err(Unserved::Forward(reason)) => return forwarded(reason),
            Err(_) => return forwarded(ForwardReason::NotFresh),
        };
        if verb == Verb::Get && matches!(need, Need::State(freshness) if self.is_lone_get(&read, freshness, false)) {
            return forwarded(ForwardReason::Consistent);
        }
        if let Need::State(freshness) | Need::List(At::Latest(freshness)) = need {
            read.hurry(verb, freshness);
        }
        loop {
            let informer = match self.factory.would_cover(read.sought()) {
                Some(Ok(informer)) => informer,
                Some(Err(NoCoverage::Encoding)) if read.json_fallback.is_some() => {
                    read.shape = read.json_fallback.take().unwrap_or(read.shape);
                    read.encoding = Encoding::Json;
                    continue;
                }
                Some(Err(reason)) => return forwarded(reason.into()),
                None if read.patience.is_zero() => return forwarded(ForwardReason::NotSynced),
                None => return Forecast { fate: Fate::Waits(Wait::Start), informer: None },
            };
            if let Err(reason) = read.may_use(&informer) {
                return forwarded(reason);
            }
            let name = Some(informer.key().to_string());
            let is_late = read.patience.is_zero() || self.waits_in_vain(&read, &informer);
            if !informer.cache().is_ready() && is_late {
                return Forecast { fate: Fate::Forwarded(ForwardReason::NotSynced), informer: name };
            }
            if !informer.cache().is_ready() {
                return Forecast { fate: Fate::Waits(Wait::Sync), informer: name };
            }
            let newest =
                matches!(need, Need::State(Freshness::Consistent) | Need::List(At::Latest(Freshness::Consistent)));
            if newest && informer.would_forward(&self.need(&read, Freshness::Consistent, verb)) {
                return Forecast { fate: Fate::Forwarded(ForwardReason::Consistent), informer: name };
            }
            let mut fate = self.fate(request, informer.cache(), &read.floor, &need);
            let waits = matches!(fate, Fate::Waits(Wait::Revision | Wait::Proof));
            if waits && verb != Verb::Watch && !read.local && informer.is_stalled() {
                fate = Fate::Forwarded(ForwardReason::NotFresh);
            }
            return Forecast { fate, informer: name };
        }
    }

    async fn wanted(&self, request: &ReadRequest, verb: Verb) -> Result<(Resolved, Need), Unserved> {
        let mut options = request.options.clone();
        if verb == Verb::Watch {
            options.set_defaults();
        }
        if verb != Verb::Get {
            options.validate().map_err(|_| ForwardReason::Invalid)?;
        }
        let mut read = self.resolve(request).await?;
        read.rows = if verb == Verb::Watch { self.followed(&read) } else { read.rows };
        let need = match verb {
            Verb::Get => Need::State(plan::get(&options, read.mode(Verb::Get))?),
            Verb::List => {
                let plan = plan::list(&options, read.mode(Verb::List), request.gvr.is_events())?;
                if is_narrowed(&read, request, &plan) || is_counted_otherwise(&read, request, &plan) {
                    return Err(ForwardReason::Unsupported.into());
                }
                read.rows = self.charged(&read, plan.state);
                Need::List(plan.state)
            }
            _ => Need::History(plan::watch(&options, read.mode(Verb::Watch))?),
        };
        Ok((read, need))
    }

    fn fate(&self, request: &ReadRequest, cache: &WatchCache, floor: &Floor, need: &Need) -> Fate {
        let newest = cache.newest();
        let fresh = |freshness| match freshness {
            Freshness::Consistent => Some(Wait::Proof),
            Freshness::Any | Freshness::NotOlderThan(_) if floor.uncovered().is_some() => Some(Wait::Proof),
            Freshness::Any => (newest < floor.get()).then_some(Wait::Revision),
            Freshness::NotOlderThan(rv) => (newest < rv.max(floor.get())).then_some(Wait::Revision),
        };
        let wait = match *need {
            Need::State(freshness) | Need::List(At::Latest(freshness)) => fresh(freshness),
            Need::List(At::Exact(rv)) => match cache.snapshot_at(rv) {
                Ok(_) => None,
                Err(SnapshotError::TooNew) => Some(Wait::Revision),
                Err(SnapshotError::NotReady) => Some(Wait::Sync),
                Err(SnapshotError::TooOld) => return Fate::Forwarded(ForwardReason::OutsideWindow),
            },
            Need::History(WatchPlan::State { freshness, .. }) => fresh(freshness),
            Need::History(WatchPlan::Now { consistent }) => consistent.then_some(Wait::Proof),
            Need::History(WatchPlan::After(rv)) if rv < cache.stats().window_floor => {
                return Fate::Forwarded(ForwardReason::OutsideWindow);
            }
            Need::History(WatchPlan::After(_)) => None,
        };
        match (wait, need) {
            (Some(wait), _) => Fate::Waits(wait),
            (None, Need::State(_)) => {
                let name = request.name.as_deref().unwrap_or_default();
                let key = ObjectKey::new(request.namespace.as_deref().unwrap_or(""), name);
                let found = cache.snapshot().is_some_and(|snapshot| snapshot.get(&key).is_some());
                if found { Fate::Served } else { Fate::NotFound }
            }
            (None, _) => Fate::Served,
        }
    }
}

// === impl Fate ===

impl Fate {
    /// The name of the plan in `X-Informerd-Plan`.
    pub fn plan(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::NotFound => "refused",
            Self::Waits(_) => "waited",
            Self::Forwarded(_) => "forwarded",
        }
    }

    /// The name of the reason in that header; empty if there is none.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Served => "",
            Self::NotFound => "not_found",
            Self::Waits(Wait::Start | Wait::Sync) => "not_synced",
            Self::Waits(Wait::Revision | Wait::Proof) => "not_fresh",
            Self::Forwarded(reason) => reason.as_str(),
        }
    }

    pub fn cause(self) -> &'static str {
        match self {
            Self::Served => "the cache has what it asks for",
            Self::NotFound => {
                "the cache is as fresh as it asks for and has no such object; the answer is the apiserver's 404"
            }
            Self::Waits(Wait::Start) => {
                "no informer of the resource runs yet: it starts one and waits for its first list"
            }
            Self::Waits(Wait::Sync) => "it waits for the first list of the informer",
            Self::Waits(Wait::Revision) => "it waits until the cache has the revision that it asks for",
            Self::Waits(Wait::Proof) => "it waits for the proof that the cache is as new as the apiserver's store",
            Self::Forwarded(reason) => reason.cause(),
        }
    }

    /// What to change; empty if nothing can be done.
    pub fn change(self) -> &'static str {
        match self {
            Self::Served | Self::NotFound => "",
            Self::Waits(Wait::Start) => "pin the resource in `resources`, so that its informer runs from the start",
            Self::Waits(Wait::Sync) => {
                "no action needed; if it lasts, see the informer's last error in `informerd status`"
            }
            Self::Waits(Wait::Revision) => "no action needed; the event is on its way",
            Self::Waits(Wait::Proof) => {
                "if a slightly older state is enough, send `resourceVersion=0` or set `consistentReads` to `bounded`"
            }
            Self::Forwarded(reason) => reason.change(),
        }
    }
}
