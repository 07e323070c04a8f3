//! The parameters of a watch, with the limits that apply to every watch.

use std::collections::HashMap;
use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;

use super::service::Objects;
use crate::grpc::call::{Caller, Error, Grants, Intake};
use crate::grpc::messages::{Rendering, Selected, TokenBase, convert, select};
use crate::grpc::pb::v1;
use crate::grpc::pb::v1::watch_request::Start;
use crate::memory::{Ledger, Reservation};
use crate::meta::{ResourceVersion, Verb};
use crate::reads::plan::Freshness;
use crate::reads::{At, Selection, WatchFrom, WatchTerms};

/// What a client asks for.
pub(super) struct RequestedWatch {
    pub(super) terms: Terms,
    pub(super) delivery: Delivery,
    pub(super) rendering: Rendering,
    pub(super) known: Option<Box<KnownObjects>>,
    pub(super) grants: Grants,
}

/// What a watch needs for as long as it is open.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) selection: Selection,
    /// Its deadline is when the watch reaches its maximum age.
    pub(super) in_cache: WatchTerms,
    /// The memory reserved for the selection.
    _held: Reservation,
    pub(super) conflate: bool,
}

/// What a watch reads for each message. A watch has it in its own memory, because what is behind a pointer is rarely in
/// the processor's cache when the next event comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) tokens: TokenBase,
    pub(super) max_batch: usize,
    pub(super) max_batch_delay: Duration,
}

/// The objects that the client already has: their revisions by uid.
#[derive(Debug)]
pub(super) struct KnownObjects {
    pub(super) objects: HashMap<String, String>,
    _held: Reservation,
}

/// The memory in bytes of an entry in such a table, without its text.
const ENTRY: usize = 160;

const BOOKMARKS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
const MAX_AGE: Duration = Duration::from_secs(1800);
const MAX_BATCH: u32 = 1000;
const BATCH: u32 = 100;
const MAX_BATCH_DELAY: Duration = Duration::from_secs(1);

// === impl KnownObjects ===

impl KnownObjects {
    /// `None` if there are no objects.
    fn new(objects: HashMap<String, String>, ledger: &Ledger, caller: &Caller) -> Result<Option<Box<Self>>, Error> {
        if objects.is_empty() {
            return Ok(None);
        }
        let bytes = objects.iter().map(|(uid, rv)| ENTRY + uid.len() + rv.len()).sum();
        let held = ledger.lasting(bytes).map_err(|_| Error::no_memory("there is no memory for one more watch"))?;
        caller.charge(&held)?;
        Ok(Some(Box::new(Self { objects, _held: held })))
    }
}

// === impl RequestedWatch ===

impl RequestedWatch {
    /// # Errors
    /// INVALID_ARGUMENT, RESOURCE_EXHAUSTED, or the error of the authorizer.
    pub(super) async fn new(
        objects: &Objects,
        caller: &Caller,
        mut request: v1::WatchRequest,
    ) -> Result<Self, tonic::Status> {
        let interval = convert::span(request.bookmark_interval.as_ref(), "bookmark_interval")?;
        let delay = convert::span(request.max_batch_delay.as_ref(), "max_batch_delay")?;
        let age = convert::span(request.max_age.as_ref(), "max_age")?;
        let sent = request.selection.as_mut();
        let Selected { selection, rendering, mut grants, held } =
            select(&objects.reads, &objects.ledger, caller, Verb::Watch, sent).await?;
        let tokens = TokenBase::new(&objects.cluster.id().await, &request.selection.unwrap_or_default());
        let (from, max_staleness) = grants.recorded(start(request.start.as_ref(), &tokens))?;
        if let Some(intake) = Intake::current() {
            intake.hand_over();
        }
        let known = grants.recorded(KnownObjects::new(request.known, &objects.ledger, caller))?;
        let batch = if request.max_batch == 0 { BATCH } else { request.max_batch.min(MAX_BATCH) };
        // Spread the ages, so that clients that started together do not all reconnect together.
        let longest = MAX_AGE.mul_f64(rand::rng().random_range(1.0..2.0));
        let in_cache = WatchTerms {
            from,
            max_staleness,
            bookmark_interval: interval.map_or(BOOKMARKS.1, |interval| interval.clamp(BOOKMARKS.0, BOOKMARKS.1)),
            deadline: Instant::now() + age.map_or(longest, |age| age.min(longest)),
        };
        let terms = Terms { selection, in_cache, _held: held, conflate: request.conflate };
        let max_batch_delay = delay.unwrap_or_default().min(MAX_BATCH_DELAY);
        let delivery = Delivery { tokens, max_batch: batch as usize, max_batch_delay };
        Ok(Self { terms, delivery, rendering, known, grants })
    }
}

fn start(start: Option<&Start>, tokens: &TokenBase) -> Result<(WatchFrom, Option<Duration>), Error> {
    match start {
        None => Ok((WatchFrom::State(Freshness::Any), None)),
        Some(Start::Snapshot(consistency)) => match convert::consistency(Some(consistency))? {
            (At::Latest(freshness), stale) => Ok((WatchFrom::State(freshness), stale)),
            (At::Exact(_), _) => Err(Error::invalid("only lists can be read at an exact resource version")),
        },
        Some(Start::ResumeToken(token)) => match tokens.read(token)? {
            Some(rv) => Ok((WatchFrom::After(rv), None)),
            None => Ok((WatchFrom::State(Freshness::Any), None)),
        },
        Some(Start::FromResourceVersion(rv)) => match convert::resource_version(rv)? {
            ResourceVersion::ZERO => Err(Error::invalid("a watch cannot begin after resource version 0")),
            rv => Ok((WatchFrom::After(rv), None)),
        },
    }
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
