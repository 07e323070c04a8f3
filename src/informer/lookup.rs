//! Finds the informer that covers a read, or decides to start one. [`Factory::would_cover`] has no effect.
//!
//! The rows of a table contain the whole objects, as JSON. So an informer of tables also serves the readers of the objects, and
//! one of JSON ends that nobody uses any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::fresh::{answer, in_namespace};
use super::key::scope_predicate;
use super::ledger::{Cost, GONE, REQUESTS, Use, Wish, is_lone};
use super::{Factory, Informer, InformerKey, InformerScope, NoCoverage};
use crate::meta::{Encoding, Gvr, Origin, Resource};
use crate::selector::Predicate;

/// A read that looks for its informer.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'r> {
    pub resource: &'r Arc<Resource>,
    pub predicate: &'r Predicate,
    pub encoding: Encoding,
    pub read: Use,
}

enum Step {
    /// This informer covers it. `true`: the read lifts its limit on the number of objects.
    Read(Arc<Informer>, bool),
    /// This one is started, and may have so many objects.
    Start(InformerKey, usize),
}

/// What a read pays to informers that do not run.
type Rents = Vec<(InformerKey, Cost)>;

// === impl Factory ===

impl Factory {
    /// Returns the informer that covers a read, synced or syncing. Starts it if it does not run yet and this read makes it
    /// worthwhile.
    pub fn covering(&self, sought: Sought<'_>) -> Result<Arc<Informer>, NoCoverage> {
        let (mut rents, is_table) = (Vec::new(), sought.encoding == Encoding::Table);
        let step = self.look(sought, &mut rents);
        for (key, cost) in rents {
            self.books().accounts.lock().pay(&key, cost, Instant::now());
        }
        let informer = match step? {
            Step::Read(informer, is_unbounded) => {
                // A table that is forwarded although the informer runs saves nothing: only those count that are served.
                if !is_table {
                    informer.touch();
                }
                if sought.read.must {
                    // Whatever it costs, it is needed, also by reads that wait.
                    informer.debt.lock().settle(None);
                }
                if is_unbounded {
                    informer.reflector.read_at_most(usize::MAX);
                }
                informer
            }
            Step::Start(key, most) => {
                self.get_or_start(sought.resource, key, most, !sought.read.initial && !is_table)?
            }
        };
        usable(informer)
    }

    /// Like [`Self::covering`], but starts nothing, counts nothing, and does not touch any informer. Returns `None` if
    /// an informer would be started.
    pub fn would_cover(&self, sought: Sought<'_>) -> Option<Result<Arc<Informer>, NoCoverage>> {
        match self.look(sought, &mut Vec::new()) {
            Ok(Step::Read(informer, _)) => Some(usable(informer)),
            Ok(Step::Start(key, _)) if self.refuses(&key.gvr, NoCoverage::Unversioned) => {
                Some(Err(NoCoverage::Unversioned))
            }
            Ok(Step::Start(..)) => self.is_full().then_some(Err(NoCoverage::TooMany)),
            Err(reason) => Some(Err(reason)),
        }
    }

    /// Whether a get of the newest state is forwarded, because a proof of it would cost the apiserver as much, or an informer
    /// more. It is counted, or only foretold.
    pub fn is_lone_get(&self, sought: Sought<'_>, is_counted: bool) -> bool {
        let lately = self.books().of(&sought.resource.gvr).gets(Instant::now(), is_counted);
        is_lone(lately, || self.would_cover(sought).is_none())
    }

    /// Looks for the informer in all scopes that may have one, and has no effect.
    fn look(&self, sought: Sought<'_>, rents: &mut Rents) -> Result<Step, NoCoverage> {
        let Sought { resource, predicate, encoding, .. } = sought;
        let gvr = &resource.gvr;
        if self.excludes(gvr) {
            return Err(NoCoverage::Excluded);
        }
        if encoding == Encoding::Table && self.refuses(gvr, NoCoverage::Cells) {
            return Err(NoCoverage::Cells);
        }
        let key = |scope| InformerKey { gvr: gvr.clone(), scope, encoding };
        let configured = self.rules().scopes(gvr);
        if !configured.is_empty() {
            let selects = |scope: &InformerScope| scope_predicate(resource, scope);
            let covers = |scope: &InformerScope| selects(scope).is_some_and(|selects| predicate.implies(&selects));
            let scope = configured.into_iter().find(covers).ok_or(NoCoverage::OutOfScope)?;
            return self.step(sought, key(scope), rents);
        }
        let namespace = predicate.scope.namespace.clone().filter(|_| resource.namespaced);
        let own = namespace.map(|namespace| key(InformerScope { namespace: Some(namespace), ..Default::default() }));
        // Its readers stay with the informer of their namespace while it runs, even if one of all namespaces runs by now: they
        // know its revisions, and its window reaches back to them.
        let is_usable = |informer: &Arc<Informer>| {
            informer.cache.is_ready() && !informer.reflector.is_forbidden() && !informer.reflector.is_unacceptable()
        };
        if let Some(informer) = own.as_ref().and_then(|own| self.holding(resource, own)).filter(is_usable) {
            return Ok(Step::Read(informer, false));
        }
        let everything = key(InformerScope::default());
        let found = self.step(sought, everything.clone(), rents);
        let is_narrower = match found {
            // Forbidden for all namespaces, but perhaps allowed in the namespace of the request.
            Err(NoCoverage::Forbidden) => true,
            // Holding all namespaces would cost too much.
            Err(NoCoverage::Seldom) => encoding == Encoding::Table || self.is_in_parts(&everything),
            _ => false,
        };
        match own.filter(|_| is_narrower) {
            Some(own) if self.running(&own).is_some() || self.has_room_for_parts() => self.step(sought, own, rents),
            Some(_) if matches!(found, Err(NoCoverage::Forbidden)) => Err(NoCoverage::TooMany),
            _ => found,
        }
    }

    /// What a read of the informer of this key does.
    fn step(&self, sought: Sought<'_>, key: InformerKey, rents: &mut Rents) -> Result<Step, NoCoverage> {
        let running = self.holding(sought.resource, &key);
        if running.as_ref().is_some_and(|informer| informer.reflector.is_forbidden()) {
            return Err(NoCoverage::Forbidden);
        }
        if let Some(informer) = running.as_ref().filter(|informer| informer.cache.is_ready()) {
            return Ok(Step::Read(Arc::clone(informer), false));
        }
        let (most, cost) = self.wish(sought, &key).start();
        if let Some(informer) = running {
            return Ok(Step::Read(informer, most == Some(usize::MAX)));
        }
        if cost != Cost::NOTHING {
            rents.push((key.clone(), cost));
        }
        most.map(|most| Step::Start(key, most)).ok_or(NoCoverage::Seldom)
    }

    fn wish(&self, sought: Sought<'_>, key: &InformerKey) -> Wish {
        let book = self.books().of(&key.gvr);
        let (rent, debts, size) = self.books().accounts.lock().of(key, Instant::now());
        let (known, table) = (self.known(key, sought.predicate), key.encoding == Encoding::Table);
        let narrower = sought.predicate.scope.namespace.is_some() && key.scope.namespace.is_none();
        let parts = (narrower && !table && size.is_some_and(|size| size > REQUESTS)).then(|| {
            let is_part = |scope: &InformerScope| scope.namespace.is_some();
            let parts = self.those(|it| it.gvr == key.gvr && it.encoding == key.encoding && is_part(&it.scope));
            (parts.len(), parts.iter().map(|informer| informer.cache.stats().objects).sum())
        });
        Wish {
            read: sought.read,
            table,
            narrower,
            whole: known.map(|(whole, _)| whole).or(size),
            asked: known.map(|(_, asked)| asked),
            parts,
            answers: *book.answers.lock(),
            prices: book.meter.prices(),
            rent,
            debts,
        }
    }

    /// The numbers of objects of the informer and of the answer, if another cache of the objects knows them.
    fn known(&self, key: &InformerKey, predicate: &Predicate) -> Option<(usize, usize)> {
        let is_wider =
            |other: &InformerKey| other.gvr == key.gvr && (other.scope == key.scope || other.scope.is_everything());
        let snapshot = self.those(is_wider).into_iter().find_map(|informer| informer.cache.snapshot())?;
        let count = |namespace: &Option<Arc<str>>| in_namespace(&snapshot, namespace.clone());
        let asked = answer(&snapshot, predicate, count(&predicate.scope.namespace));
        Some((count(&key.scope.namespace), asked))
    }

    /// Whether single namespaces should have their own informers.
    fn is_in_parts(&self, everything: &InformerKey) -> bool {
        let size = self.books().accounts.lock().of(everything, Instant::now()).2;
        size.is_some_and(|size| size > REQUESTS)
    }

    /// Informers of single namespaces that no rule names may take up to half of the places: a client can make namespaces up.
    fn has_room_for_parts(&self) -> bool {
        let is_part = |key: &InformerKey| key.scope.namespace.is_some() && self.rules().scopes(&key.gvr).is_empty();
        self.those(is_part).len() < self.most_informers().div_ceil(2)
    }

    /// Returns the running informer that holds the objects of `key` in the present definition of their resource: the one
    /// with this key, or one of tables for readers of JSON.
    fn holding(&self, resource: &Resource, key: &InformerKey) -> Option<Arc<Informer>> {
        let running = |key| self.running(key).filter(|informer| informer.is_of(resource));
        let own = running(key);
        // For types that are not built in, only a list of objects shows the kind of their lists.
        if key.encoding != Encoding::Json || resource.origin != Origin::BuiltIn {
            return own;
        }
        let table = running(&InformerKey { encoding: Encoding::Table, ..key.clone() });
        let table = table.filter(|table| !table.reflector.is_unacceptable() && !table.reflector.has_given_up());
        match (own, table) {
            (_, Some(table)) if table.cache.is_ready() => Some(table),
            (Some(own), _) => Some(own),
            (None, table) => table,
        }
    }

    /// Whether nobody uses an informer of JSON any more whose objects are held with their tables.
    pub(super) fn is_redundant(&self, informer: &Informer) -> bool {
        let by_table =
            || self.holding(&informer.resource, &informer.key).is_some_and(|other| other.key != informer.key);
        let is_kept = informer.pinned || informer.outlasts.load(Ordering::Relaxed);
        !is_kept && informer.idle_for() >= GONE && by_table()
    }

    pub(super) fn refuses(&self, gvr: &Gvr, why: NoCoverage) -> bool {
        self.books().accounts.lock().refuses(gvr, why, Instant::now())
    }

    /// Returns the encoding of a cache that holds what `predicate` selects: JSON if both encodings are held, or none.
    pub fn held(&self, resource: &Resource, predicate: &Predicate) -> Encoding {
        let covers =
            |scope: &InformerScope| scope_predicate(resource, scope).is_some_and(|selects| predicate.implies(&selects));
        let mut informers = self.those(|key| key.gvr == resource.gvr && covers(&key.scope));
        informers.retain(|informer| informer.cache.is_ready());
        let is_protobuf = |informer: &Arc<Informer>| informer.key.encoding == Encoding::Protobuf;
        if !informers.is_empty() && informers.iter().all(is_protobuf) { Encoding::Protobuf } else { Encoding::Json }
    }
}

/// Replaces an informer that cannot be used with the reason.
fn usable(informer: Arc<Informer>) -> Result<Arc<Informer>, NoCoverage> {
    let (reflector, is_ready) = (&informer.reflector, informer.cache.is_ready());
    match () {
        () if reflector.is_unacceptable() => Err(NoCoverage::Encoding),
        () if reflector.is_too_large() && !is_ready => Err(NoCoverage::Memory),
        () if reflector.is_undecodable() && !is_ready => Err(NoCoverage::Undecodable),
        () => Ok(informer),
    }
}
