//! What get, list and watch share: finding the informer, waiting for it, and waiting until it is fresh enough.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;
use tracing::Span;

use crate::cache::{Snapshot, SnapshotError};
use crate::codec::{Form, Format, Shape, table};
use crate::informer::{Coverage, Factory, Informer, Need, NoCoverage, NotFresh, Use};
use crate::meta::{Encoding, FieldTable, Gvr, Origin, Resource, ResourceVersion, Scope, Verb, errors};
use crate::selector::{self, FieldSelector, LabelSelector, Predicate};

use super::allowance::Allowance;
use super::floors::Floor;
use super::gets::Gets;
use super::plan::{At, Freshness};
use super::shards::Shard;
use super::unserved::Unserved;
use super::{Floors, ForwardReason, ListIdentity, Outcome, ReadMetrics, ReadRequest, Served, Waited, refusal, spans};

/// How reads that must be the newest are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConsistentReads {
    /// Forward them; equal ones that wait together share one upstream read.
    Upstream,
    /// Take the cheapest exact way: prove that the cache is at the apiserver's revision and serve from it, or forward.
    Auto,
    /// Serve a state that was proved to be the newest within [`Modes::max_age`].
    Bounded,
    /// Ask the apiserver for its revision, prove that the cache is there, and serve from the cache.
    Probe,
    /// Serve what the cache has, never older than anything this daemon has shown.
    Cache,
}

/// How a read that prefers protobuf is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProtobufReads {
    /// In protobuf, from an informer of its own.
    Serve,
    /// In JSON from the informer of JSON, if the client takes JSON too; otherwise it is forwarded.
    Json,
    /// By the apiserver.
    Forward,
}

/// The mode of each verb, and of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    pub get: ConsistentReads,
    pub list: ConsistentReads,
    pub watch: ConsistentReads,
    /// How old the proof may be that a read in the mode `bounded` relies on.
    pub max_age: Duration,
    pub protobuf: ProtobufReads,
    /// Whether reads are answered with an old state while the apiserver does not answer.
    pub while_away: bool,
}

/// What a read does whose informer is not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSynced {
    /// How long it waits first.
    pub wait: Duration,
    /// Then: forward it, or refuse it with 429 and Retry-After.
    pub forward: bool,
}

/// Settings of the read path.
#[derive(Clone, Debug)]
pub struct ReadsConfig {
    pub modes: Modes,
    /// Exceptions from `modes`, by group and resource; the first that matches. `*` matches any.
    pub exceptions: Vec<(String, String, Modes)>,
    pub not_synced: NotSynced,
    /// How long a read waits for a revision; the apiserver's own bound is 3 s.
    pub freshness_timeout: Duration,
}

/// Watches from before our window that are forwarded at once, and then one every so often. Each may stay for as long as
/// its client asked: clients that come back to a daemon that was just started must not all end up at the apiserver.
/// Beyond that they get the 410 that the apiserver gives them after its own restart, and list anew, from the cache.
const OLD_WATCHES: u32 = 100;
const OLD_WATCH_EVERY: Duration = Duration::from_secs(6);

/// Some hundred bytes each.
const COUNTED_PAGES: u64 = 1024;

/// The read path over the shared informers. Cloning shares it.
#[derive(Clone)]
pub struct Reads {
    pub(super) factory: Factory,
    pub(super) config: Arc<ReadsConfig>,
    floors: Floors,
    metrics: Arc<ReadMetrics>,
    pub(super) old_watches: Arc<Allowance>,
    pub(super) gets: Arc<Gets>,
    /// How many objects there are from the beginning of a page on. Of so many pages; others are counted again.
    pub(super) counts: moka::future::Cache<ListIdentity, u64>,
}

/// A request whose resource and selectors are known.
pub(super) struct Resolved {
    pub(super) resource: Arc<Resource>,
    /// In which encoding and shape it is to be answered.
    pub(super) encoding: Encoding,
    pub(super) shape: Shape,
    /// In which shape it may be answered in JSON if the apiserver does not speak the encoding for this type.
    pub(super) json_fallback: Option<Shape>,
    /// The metadata of objects that are kept in JSON is to be written in protobuf.
    pub(super) converted: bool,
    pub(super) predicate: Predicate,
    /// The part of the predicate that is asked for.
    pub(super) shard: Option<Shard>,
    /// Its label and field selector as they came, if it has any.
    pub(super) selectors: Option<(String, String)>,
    /// What of a table is read.
    pub(super) rows: Use,
    pub(super) floor: Arc<Floor>,
    pub(super) modes: Modes,
    /// It cannot be forwarded.
    pub(super) local: bool,
    /// An old state will do.
    pub(super) stale: bool,
    /// How long it waits at most for its informer to be synced.
    pub(super) patience: Duration,
}

// === impl ConsistentReads ===

impl ConsistentReads {
    /// The mode for a request. What cannot be forwarded is proved, at the cost of a read of our own. A client of a trusted
    /// listener that shows credentials of its own is left to the apiserver, unless a mode was chosen that says otherwise:
    /// by default nobody gets the newest state who would not get it without informerd.
    pub(super) fn of(self, request: &ReadRequest, verb: Verb) -> Self {
        match self {
            Self::Upstream | Self::Auto if request.local => Self::Probe,
            Self::Auto if request.own_credentials && verb != Verb::Watch => Self::Upstream,
            mode => mode,
        }
    }
}

// === impl Resolved ===

impl Resolved {
    /// A read that the apiserver may answer as well does not wait long for an informer that is only starting: a list some
    /// time, because the watch that follows it is then served, and a get none.
    pub(super) fn hurry(&mut self, verb: Verb, freshness: Freshness) {
        if self.may_choose(verb) && freshness == Freshness::Consistent {
            self.patience = if verb == Verb::Get { Duration::ZERO } else { Duration::from_secs(1) };
        }
    }

    /// Whether the apiserver may be left to answer where that is cheaper.
    fn may_choose(&self, verb: Verb) -> bool {
        !self.local && matches!(self.mode(verb), ConsistentReads::Auto | ConsistentReads::Bounded)
    }

    pub(super) fn mode(&self, verb: Verb) -> ConsistentReads {
        if self.stale { ConsistentReads::Cache } else { self.modes.of(verb) }
    }
}

// === impl Modes ===

impl Modes {
    fn of_request(self, request: &ReadRequest) -> Self {
        let [get, list, watch] = [Verb::Get, Verb::List, Verb::Watch].map(|verb| self.of(verb).of(request, verb));
        Self { get, list, watch, ..self }
    }

    pub(super) fn of(&self, verb: Verb) -> ConsistentReads {
        match verb {
            Verb::Get => self.get,
            Verb::Watch => self.watch,
            _ => self.list,
        }
    }
}

// === impl Reads ===

impl Reads {
    pub fn new(config: ReadsConfig, factory: Factory) -> Self {
        Self {
            factory,
            config: Arc::new(config),
            floors: Floors::default(),
            metrics: Arc::default(),
            old_watches: Arc::new(Allowance::new(OLD_WATCHES, OLD_WATCH_EVERY, Instant::now())),
            gets: Arc::default(),
            counts: moka::future::Cache::new(COUNTED_PAGES),
        }
    }

    /// The revisions that forwarded answers have shown; the forwarder raises them.
    pub fn floors(&self) -> &Floors {
        &self.floors
    }

    /// The `Warning` headers that belong on every answer to a read of this resource, refusals included.
    pub fn warnings(&self, gvr: &Gvr) -> Arc<[HeaderValue]> {
        self.factory.warnings(gvr)
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

    /// Resource, field table and predicate of a request. Whatever does not parse is forwarded: the apiserver then
    /// refuses it in its own words.
    pub(super) async fn resolve(&self, request: &ReadRequest) -> Result<Resolved, Unserved> {
        let gvr = &request.gvr;
        if self.factory.excludes(gvr) {
            return Err(ForwardReason::Excluded.into());
        }
        let Ok(Some(resource)) = self.factory.resource(gvr).await else {
            return Err(ForwardReason::NotReadable.into());
        };
        if !(resource.verbs.list && resource.verbs.watch) {
            return Err(ForwardReason::NotReadable.into());
        }
        // A namespaced path of a cluster-scoped type, or an item of a namespaced one without namespace, is a 404 of
        // the apiserver's router.
        let misplaced = if resource.namespaced {
            // Its watch by a name alone is routed for custom resources only.
            let by_name = request.legacy_watch && matches!(resource.origin, Origin::Custom { .. });
            request.namespace.is_none() && request.name.is_some() && !by_name
        } else {
            request.namespace.is_some()
        };
        if misplaced || request.name.as_deref().is_some_and(|name| is_refused(name, request)) {
            return Err(ForwardReason::Invalid.into());
        }
        let table = selector::field_table(&resource);
        let predicate = predicate(request, &resource, &table).ok_or(ForwardReason::Invalid)?;
        let floor = self.floors.of(&gvr.group, &gvr.resource);
        let modes = self.modes(gvr).of_request(request);
        let answered = answered_as(request.format, &resource, modes.protobuf);
        let (Format { encoding, shape, json_fallback }, converted) = answered.ok_or(ForwardReason::Encoding)?;
        let shard = self.shard(request, &resource).await?;
        let predicate = match &shard {
            Some(shard) => predicate.in_shard(shard.selector.clone()),
            None => predicate,
        };
        let (labels, fields) = (&request.options.label_selector, &request.options.field_selector);
        Ok(Resolved {
            resource,
            encoding,
            shape,
            json_fallback,
            converted,
            predicate,
            shard,
            selectors: (!labels.is_empty() || !fields.is_empty()).then(|| (labels.clone(), fields.clone())),
            rows: rows(request),
            floor,
            modes,
            local: request.local,
            stale: request.stale,
            patience: if request.stale { Duration::ZERO } else { Duration::MAX },
        })
    }

    /// The informer that covers the request, once it is synced; one of JSON if the apiserver does not speak the encoding.
    pub(super) async fn synced(&self, read: &mut Resolved) -> Result<(Arc<Informer>, Arc<Form>, Waited), Unserved> {
        let deadline = Instant::now() + self.config.not_synced.wait.min(read.patience);
        let mut waited = Waited::Nothing;
        loop {
            let informer = match self.covering(read) {
                Coverage::By(informer) => informer,
                Coverage::None(NoCoverage::Encoding) if read.json_fallback.is_some() => {
                    read.shape = read.json_fallback.take().unwrap_or(read.shape);
                    read.encoding = Encoding::Json;
                    continue;
                }
                Coverage::None(reason) => return Err(ForwardReason::from(reason).into()),
            };
            if waited == Waited::Nothing {
                spans::informer(&informer);
            }
            if let (true, Some(form)) = (informer.cache().is_ready(), informer.cache().form()) {
                let form = match read.encoding {
                    _ if read.converted => form.metadata_in_protobuf(),
                    Encoding::Table => form,
                    Encoding::Json | Encoding::Protobuf => form.objects(),
                };
                return Ok((informer, form, waited));
            }
            waited = Waited::Sync;
            if Instant::now() >= deadline {
                if self.config.not_synced.forward || read.patience < self.config.not_synced.wait {
                    return Err(ForwardReason::NotSynced.into());
                }
                return Err(Unserved::Refuse(Box::new(errors::too_many_requests("storage is (re)initializing", 1))));
            }
            // A refusal ends the wait: the loop then looks for a narrower informer, or for one of another encoding.
            informer.synced(deadline).await;
        }
    }

    fn covering(&self, read: &Resolved) -> Coverage {
        self.factory.covering(&read.resource, &read.predicate, read.encoding, read.rows)
    }

    /// Waits until the cache is as fresh as the read asks, and never older than what this daemon has shown.
    pub(super) async fn fresh(
        &self,
        informer: &Arc<Informer>,
        read: &Resolved,
        freshness: Freshness,
        verb: Verb,
    ) -> Result<(Snapshot, Waited), Unserved> {
        let unknown = read.floor.uncovered();
        let need = self.need(read, freshness, verb);
        let shown = need.shown;
        match informer.fresh(&need).await {
            Ok(fresh) => {
                if let (Some(answers), Some(store)) = (unknown, fresh.store) {
                    read.floor.cover(answers, store);
                }
                Ok((fresh.snapshot, if fresh.at_once { Waited::Nothing } else { Waited::Freshness }))
            }
            Err(NotFresh::Dearer) => Err(ForwardReason::Consistent.into()),
            Err(NotFresh::Late) => Err(ForwardReason::NotFresh.into()),
            Err(NotFresh::TooLarge { want }) => Err(Unserved::TooLarge { want }),
            Err(NotFresh::Rewound { now }) => {
                // What was shown before no longer binds, and the reflector is about to find out, too.
                read.floor.rewound(shown, now);
                Err(ForwardReason::NotFresh.into())
            }
        }
    }

    /// What a read needs of a cache, from now on.
    pub(super) fn need<'r>(&self, read: &'r Resolved, freshness: Freshness, verb: Verb) -> Need<'r> {
        let mode = read.mode(verb);
        Need {
            freshness,
            // An old state is told with its age: it may be older than what was shown.
            shown: if read.stale { ResourceVersion::ZERO } else { read.floor.get() },
            // What was written at an unknown revision is not known to be missing from an old state, either.
            unknown: read.floor.uncovered().is_some() && !read.stale,
            verb,
            predicate: &read.predicate,
            selectors: read.selectors.as_ref().map(|(labels, fields)| (&**labels, &**fields)),
            limit: read.rows.limit,
            may_forward: read.may_choose(verb) && freshness == Freshness::Consistent && verb != Verb::Watch,
            max_age: if mode == ConsistentReads::Bounded { read.modes.max_age } else { Duration::ZERO },
            deadline: Instant::now() + self.config.freshness_timeout,
        }
    }

    /// The state a list is of.
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

    /// Starts the informer that a forwarded list or watch shows to be wanted, and gives it a moment to sync: the
    /// watch that follows the list then finds its revision inside our window.
    pub(super) async fn demand(&self, read: &Resolved) {
        // Tables only for those that would be served.
        if read.encoding == Encoding::Table {
            return;
        }
        if let Coverage::By(informer) = self.covering(read) {
            let moment = Instant::now() + self.config.not_synced.wait.min(Duration::from_secs(1));
            informer.synced(moment).await;
        }
    }

    /// Whether reads of this resource are answered with an old state while the apiserver does not answer.
    pub fn serves_while_away(&self, gvr: &Gvr) -> bool {
        self.modes(gvr).while_away
    }

    /// Counts an outcome on its way out. A read that is `stale` has been counted before, as one that is forwarded.
    pub(super) fn outcome<T>(
        &self,
        span: &Span,
        stale: bool,
        result: Result<T, Unserved>,
        served: impl Fn(&T) -> Served,
    ) -> Outcome<T> {
        let outcome = match result {
            // That an old state has no such object says little.
            Err(_) if stale => Outcome::Forward(ForwardReason::NotFresh),
            result => result.map_or_else(Outcome::from, Outcome::Serve),
        };
        match &outcome {
            Outcome::Serve(_) if stale => self.metrics.old(),
            _ if stale => {}
            Outcome::Serve(answer) => self.metrics.served(served(answer).waited),
            Outcome::Forward(reason) => self.metrics.forwarded(*reason),
            Outcome::Refuse(status) => self.metrics.refused(refusal(status)),
        }
        spans::end(span, &outcome, served);
        outcome
    }
}

/// The encoding of the cache and the shape of the answer, and whether metadata is converted to protobuf; `None` if no
/// cache holds what the apiserver would answer.
pub(super) fn answered_as(format: Format, resource: &Resource, protobuf: ProtobufReads) -> Option<(Format, bool)> {
    let json = || format.json_fallback.map(Format::json);
    let mut converted = false;
    let answered = match (format.encoding, protobuf, &resource.origin) {
        (Encoding::Json, ..) => Some(format),
        // How an aggregated server prints its tables, nobody knows.
        (Encoding::Table, _, Origin::Unknown) => None,
        (Encoding::Table, ..) if table::is_sorted(&resource.gvr) => None,
        (Encoding::Table, ..) => Some(format),
        (Encoding::Protobuf, ProtobufReads::Forward, _) => None,
        (Encoding::Protobuf, ProtobufReads::Json, _) => json(),
        (Encoding::Protobuf, ProtobufReads::Serve, Origin::BuiltIn | Origin::Unknown) => Some(format),
        // There are no messages of them but their metadata, which the apiserver makes of JSON.
        (Encoding::Protobuf, ProtobufReads::Serve, Origin::Custom { .. }) if format.shape == Shape::Full => json(),
        (Encoding::Protobuf, ProtobufReads::Serve, Origin::Custom { .. }) => {
            converted = true;
            Some(Format::json(format.shape))
        }
    };
    answered.map(|answered| (answered, converted))
}

/// What the apiserver would print for the request.
fn rows(request: &ReadRequest) -> Use {
    let options = &request.options;
    Use {
        named: request.name.is_some(),
        selected: !options.label_selector.is_empty() || !options.field_selector.is_empty(),
        limit: usize::try_from(options.limit).ok().filter(|&limit| limit > 0),
        lasts: request.local,
    }
}

/// What an answer from this informer's cache is of, which counts.
pub(super) fn served(informer: &Informer, waited: Waited, rv: ResourceVersion) -> Served {
    informer.serves();
    Served { waited, rv, heard: informer.heard() }
}

/// Whether the apiserver refuses to read this name (as it cannot be one), or to have it named a second time by the field
/// selector of a watch that names it in its path.
fn is_refused(name: &str, request: &ReadRequest) -> bool {
    name.contains('%') || request.legacy_watch && !request.options.field_selector.is_empty()
}

/// The predicate of a request, or `None` where its selectors are not to be understood.
fn predicate(request: &ReadRequest, resource: &Resource, table: &FieldTable) -> Option<Predicate> {
    let labels = LabelSelector::parse(&request.options.label_selector).ok()?;
    let fields = FieldSelector::parse(&request.options.field_selector).ok()?.compile(resource, table).ok()?;
    let scope = Scope { namespace: request.namespace.clone(), name: request.name.clone() };
    Some(Predicate::new(scope, Arc::new(labels), Arc::new(fields)))
}
