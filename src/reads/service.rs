//! The common steps of get, list and watch: find the informer, wait for it, and wait until it is fresh enough.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::cache::{Floors, Snapshot, SnapshotError};
use crate::codec::{Format, Shape, table};
use crate::informer::{Asked, Factory, Giver, Informer, Need, NotFresh, Rent, Use};
use crate::meta::{Encoding, FieldTable, Gvr, Origin, Resource, ResourceVersion, Scope, Verb, errors};
use crate::selector::{self, FieldSelector, LabelSelector, Predicate};

use super::allowance::Allowance;
use super::plan::{At, Freshness};
use super::resolved::Resolved;
use super::unserved::Unserved;
use super::{
    ConsistentReads, ForwardReason, ListIdentity, Modes, Outcome, ProtobufReads, ReadMetrics, ReadRequest, ReadsConfig,
    Served, Waited, refusal, spans,
};

/// Rate limit for forwarded watches that start before our window: a burst, and then one per interval. Each may last as
/// long as its client asked for. When clients come back to a daemon that was just started, and its window cannot be
/// filled, not all of them may move to the apiserver. Beyond the limit they get the 410 that the apiserver sends after
/// its own restart, and list again from the cache.
const OLD_WATCHES: u32 = 100;
const OLD_WATCH_EVERY: Duration = Duration::from_secs(6);

/// Each entry takes a few hundred bytes.
const COUNTED_PAGES: u64 = 1024;

/// The read path over the shared informers. Clones share it.
#[derive(Clone)]
pub struct Reads {
    pub(super) factory: Factory,
    pub(super) config: Arc<ReadsConfig>,
    metrics: Arc<ReadMetrics>,
    pub(super) old_watches: Arc<Allowance>,
    /// The number of objects from the beginning of a page on. Kept for this many pages; others are counted again.
    pub(super) counts: moka::future::Cache<ListIdentity, u64>,
    /// The clients have identities, on which the answers of aggregated API servers may depend. So it is unless somebody says
    /// otherwise.
    identified: bool,
}

// === impl Reads ===

impl Reads {
    pub fn new(config: ReadsConfig, factory: Factory) -> Self {
        Self {
            factory,
            config: Arc::new(config),
            metrics: Arc::default(),
            old_watches: Arc::new(Allowance::new(OLD_WATCHES, OLD_WATCH_EVERY, Instant::now())),
            counts: moka::future::Cache::new(COUNTED_PAGES),
            identified: true,
        }
    }

    /// The same read path for requests of trusted listeners, whose clients have no identities. Selections say so themselves.
    pub fn for_trusted(&self) -> Self {
        Self { identified: false, ..self.clone() }
    }

    /// What clients have been shown; the forwarder raises them.
    pub fn floors(&self) -> &Floors {
        self.factory.floors()
    }

    /// The `Warning` headers for every answer to a read of this resource, including refusals.
    pub fn warnings(&self, gvr: &Gvr) -> Arc<[HeaderValue]> {
        self.factory.warnings(gvr)
    }

    /// Books an answer of the apiserver about a resource that there is. `as_sent`: it is compressed, or a watch.
    pub fn rent(&self, gvr: &Gvr, giver: Giver, as_sent: bool) -> Rent {
        self.factory.rent(gvr, giver, as_sent)
    }

    pub fn metrics(&self) -> &Arc<ReadMetrics> {
        &self.metrics
    }

    pub(super) fn modes(&self, gvr: &Gvr) -> Modes {
        let exception = self.config.exceptions.iter().find(|(group, resource, _)| {
            (group == "*" || *group == *gvr.group) && (resource == "*" || *resource == *gvr.resource)
        });
        exception.map_or(self.config.modes, |(_, _, modes)| *modes)
    }

    /// Resolves the resource, field table and predicate of a request. A request that cannot be parsed is forwarded, so
    /// that the apiserver refuses it with its own message.
    pub(super) async fn resolve(&self, request: &ReadRequest) -> Result<Resolved, Unserved> {
        let gvr = &request.gvr;
        let until = request.timeout.and_then(|timeout| Instant::now().checked_add(timeout / 2));
        if self.factory.excludes(gvr) {
            return Err(ForwardReason::Excluded.into());
        }
        let Ok(Some(resource)) = self.factory.resource(gvr).await else {
            return Err(ForwardReason::NotReadable.into());
        };
        if !(resource.verbs.list && resource.verbs.watch) {
            return Err(ForwardReason::NotReadable.into());
        }
        let proof = self.shareable(&resource, self.identified).await?;
        // A path with a namespace for a cluster-scoped type, or an item of a namespaced type without a namespace, gets
        // a 404 from the apiserver's router.
        let misplaced = if resource.namespaced {
            // A watch by name without a namespace is routed only for custom resources.
            let by_name = request.legacy_watch && matches!(resource.origin, Origin::Custom { .. });
            request.namespace.is_none() && request.name.is_some() && !by_name
        } else {
            request.namespace.is_some()
        };
        if misplaced || request.name.as_deref().is_some_and(|name| is_refused(name, request)) {
            return Err(ForwardReason::Invalid.into());
        }
        let table = selector::field_table(&resource);
        let (predicate, selects) = predicate(request, &resource, &table).ok_or(ForwardReason::Invalid)?;
        let floor = self.factory.floor(gvr);
        let modes = self.modes(gvr);
        let answered = answered_as(request.format, &resource, modes.protobuf);
        let (Format { encoding, shape, json_fallback }, converted) = answered.ok_or(ForwardReason::Encoding)?;
        let shard = self.shard(request, &resource).await?;
        let predicate = match &shard {
            Some(shard) => predicate.in_shard(shard.selector.clone()),
            None => predicate,
        };
        let (labels, fields) = (&request.options.label_selector, &request.options.field_selector);
        let unknown = floor.uncovered();
        Ok(Resolved {
            resource,
            encoding,
            shape,
            json_fallback,
            converted,
            predicate,
            shard,
            selectors: selects.then(|| (labels.clone(), fields.clone())),
            // The part of its collection that the request asks for.
            rows: Use {
                named: request.name.is_some(),
                selected: !labels.is_empty() || !fields.is_empty(),
                limit: usize::try_from(request.options.limit).ok().filter(|&limit| limit > 0),
                must: request.local,
                ..Use::default()
            },
            floor,
            arrived: Asked::now(),
            unknown,
            consistent: modes.consistent,
            proof,
            local: request.local,
            own_credentials: request.own_credentials,
            gzip: request.gzip,
            stale: request.stale,
            patience: if request.stale { Duration::ZERO } else { Duration::MAX },
            until,
        })
    }

    /// Waits until the cache is as fresh as the read requires, and not older than what this daemon has shown.
    pub(super) async fn fresh(
        &self,
        informer: &Arc<Informer>,
        read: &Resolved,
        freshness: Freshness,
        verb: Verb,
    ) -> Result<(Snapshot, Waited), Unserved> {
        let unknown = read.floor.uncovered();
        let mut need = self.need(read, freshness, verb);
        if unknown.is_some() && unknown != read.unknown {
            // What was written since then is covered only by what is asked for from now on.
            need.arrived = Asked::now();
        }
        let shown = need.shown;
        match informer.fresh(&need).await {
            Ok(fresh) => {
                read.is_still_shareable()?;
                if let (Some(answers), Some(store)) = (unknown, fresh.store) {
                    read.floor.cover(answers, store);
                }
                Ok((fresh.snapshot, if fresh.at_once { Waited::Nothing } else { Waited::Freshness }))
            }
            Err(NotFresh::Dearer) => Err(ForwardReason::Consistent.into()),
            Err(NotFresh::Late) => Err(ForwardReason::NotFresh.into()),
            Err(NotFresh::TooLarge { want }) => Err(Unserved::TooLarge { want }),
            Err(NotFresh::Rewound { now }) => {
                // What was shown before no longer applies, and the reflector is about to find that out, too.
                read.floor.rewound(shown, now);
                Err(ForwardReason::NotFresh.into())
            }
        }
    }

    /// The present requirements of a read for a cache.
    pub(super) fn need<'r>(&self, read: &'r Resolved, freshness: Freshness, verb: Verb) -> Need<'r> {
        Need {
            freshness,
            // An old state is sent with its age, so it may be older than what was shown.
            shown: if read.stale { ResourceVersion::ZERO } else { read.floor.get() },
            // A write at an unknown revision does not matter for an old state either.
            unknown: read.floor.uncovered().is_some() && !read.stale,
            verb,
            predicate: &read.predicate,
            selectors: read.selectors.as_ref().map(|(labels, fields)| (&**labels, &**fields)),
            only_metadata: read.shape != Shape::Full,
            gzip: read.gzip,
            limit: read.rows.limit,
            may_forward: read.may_choose(verb) && freshness == Freshness::Consistent && verb != Verb::Watch,
            can_forward: !read.local,
            max_age: if let ConsistentReads::Bounded(age) = read.mode(verb) { age } else { Duration::ZERO },
            arrived: read.arrived,
            deadline: read.bounded(Instant::now() + self.config.freshness_timeout),
        }
    }

    /// Returns the state for a list.
    pub(super) async fn state(
        &self,
        informer: &Arc<Informer>,
        read: &Resolved,
        at: At,
    ) -> Result<(Snapshot, Waited), Unserved> {
        let freshness = match at {
            At::Latest(freshness) => freshness,
            At::Exact(rv) => Freshness::NotOlderThan(rv),
        };
        let (latest, waited) = self.fresh(informer, read, freshness, Verb::List).await?;
        let At::Exact(rv) = at else {
            read.floor.raise(latest.rv());
            return Ok((latest, waited));
        };
        match informer.cache().snapshot_at(rv) {
            Ok(snapshot) => Ok((snapshot, waited)),
            Err(SnapshotError::NotReady) => Err(ForwardReason::NotSynced.into()),
            Err(SnapshotError::TooOld | SnapshotError::TooNew) => {
                Err(Unserved::Expired(Box::new(errors::expired_snapshot(rv.get()))))
            }
        }
    }

    /// Whether reads of the newest state are answered in another way if a client has its own credentials.
    pub fn minds_credentials(&self, gvr: &Gvr, verb: Verb) -> bool {
        let mode = self.modes(gvr).consistent;
        mode.of(verb, false, true) != mode.of(verb, false, false)
    }

    /// Whether reads of this resource are answered with an old state while the apiserver does not answer.
    pub fn serves_while_away(&self, gvr: &Gvr) -> bool {
        self.modes(gvr).while_away
    }

    /// Attempts a read, and once more if the definition of its resource has changed while it waited: every attempt resolves
    /// the request anew. Counts the outcome. A read that is `stale` was already counted as a forwarded one.
    pub(super) async fn answered<T, F>(
        &self,
        verb: &'static str,
        request: &ReadRequest,
        attempt: impl Fn() -> F,
        served: impl Fn(&T) -> Served,
    ) -> Outcome<T>
    where
        F: Future<Output = Result<T, Unserved>>,
    {
        let span = spans::begin(verb, &request.gvr, request.namespace.as_deref());
        let (stale, mut again) = (request.stale, true);
        let result = loop {
            match attempt().instrument(span.clone()).await {
                Err(Unserved::Outdated) if again => again = false,
                result => break result,
            }
        };
        let outcome = match result {
            // If an old state does not contain an object, that proves little.
            Err(_) if stale => Outcome::Forward(ForwardReason::NotFresh),
            // What the apiserver would say of it, too.
            Err(Unserved::Expired(status)) if request.local => Outcome::Refuse(status),
            result => result.map_or_else(Outcome::from, Outcome::Serve),
        };
        match &outcome {
            Outcome::Serve(_) if stale => self.metrics.old(),
            _ if stale => {}
            Outcome::Serve(answer) => self.metrics.served(served(answer).waited),
            Outcome::Forward(reason) => self.metrics.forwarded(*reason),
            Outcome::Refuse(status) => self.metrics.refused(refusal(status)),
        }
        let told = match &outcome {
            Outcome::Serve(answer) => Ok((served(answer).waited, served(answer).rv)),
            Outcome::Forward(reason) => Err(("forward", reason.as_str())),
            Outcome::Refuse(status) => Err(("refuse", refusal(status))),
        };
        spans::end(&span, told);
        outcome
    }
}

/// The encoding of the cache and the shape of the answer, and whether metadata is converted to protobuf. `None` if no
/// cache holds what the apiserver would answer.
pub(super) fn answered_as(format: Format, resource: &Resource, protobuf: ProtobufReads) -> Option<(Format, bool)> {
    let json = || format.json_fallback.map(Format::json);
    let mut converted = false;
    let answered = match (format.encoding, protobuf, &resource.origin) {
        (Encoding::Json, ..) => Some(format),
        // It is unknown how an aggregated server prints its tables.
        (Encoding::Table, _, Origin::Unknown) => None,
        (Encoding::Table, ..) if table::is_sorted(&resource.gvr) => None,
        (Encoding::Table, ..) => Some(format),
        (Encoding::Protobuf, ProtobufReads::Forward, _) => None,
        (Encoding::Protobuf, ProtobufReads::Json, _) => json(),
        (Encoding::Protobuf, ProtobufReads::Serve, Origin::BuiltIn | Origin::Unknown) => Some(format),
        // Custom resources have no protobuf messages except for their metadata, which the apiserver converts from JSON.
        (Encoding::Protobuf, ProtobufReads::Serve, Origin::Custom { .. }) if format.shape == Shape::Full => json(),
        (Encoding::Protobuf, ProtobufReads::Serve, Origin::Custom { .. }) => {
            converted = true;
            Some(Format::json(format.shape))
        }
    };
    answered.map(|answered| (answered, converted))
}

/// Counts a read that is served from this informer's cache, and describes its state.
pub(super) fn served(informer: &Informer, waited: Waited, rv: ResourceVersion) -> Served {
    informer.serves();
    Served { waited, rv, heard: informer.heard() }
}

/// Whether the apiserver refuses this name: either because it is not a valid name, or because the path of a watch names
/// the object and its field selector must not name it again.
fn is_refused(name: &str, request: &ReadRequest) -> bool {
    name.contains('%') || request.legacy_watch && !request.options.field_selector.is_empty()
}

/// The predicate of a request, and whether its selectors require anything: a text such as `,` does not. `None` if they
/// cannot be parsed.
fn predicate(request: &ReadRequest, resource: &Resource, table: &FieldTable) -> Option<(Predicate, bool)> {
    let labels = &request.options.label_selector;
    let labels = LabelSelector::parse(labels).ok().filter(|_| !LabelSelector::depends_on_version(labels))?;
    let fields = FieldSelector::parse(&request.options.field_selector).ok()?;
    let selects = !labels.is_empty() || !fields.is_empty();
    let fields = fields.compile(resource, table).ok()?;
    let scope = Scope { namespace: request.namespace.clone(), name: request.name.clone() };
    Some((Predicate::new(scope, Arc::new(labels), Arc::new(fields)), selects))
}
