//! Decides in which form objects are held for their readers.
//!
//! The rows of a table contain the whole objects, as JSON. So if tables are read, one informer of tables also serves
//! the readers of the objects, and the apiserver lists and watches them only once. An informer of one more encoding is
//! started when it is worth the cost of its list; see [`super::demand`]. The same holds if only parts of a collection are
//! listed, and for an informer of all namespaces of a large collection of which only single namespaces are read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::demand::{ALSO, REQUESTS, Use};
use super::{Coverage, Factory, Informer, InformerKey, InformerScope, NoCoverage};
use crate::meta::{Encoding, Origin, Resource};
use crate::selector::Predicate;

/// An informer of JSON that was not used for this long is stopped, if an informer of tables holds its objects.
const REDUNDANT: Duration = Duration::from_secs(60);

/// Above this number of single-namespace informers, one informer of all namespaces is better, although it holds more.
const PARTS: usize = 32;

/// What it takes to start an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The first read.
    Now,
    /// The first read, unless the apiserver reports many objects.
    IfSmall,
    /// Forwarded reads whose cost reaches that of the list.
    IfWorth,
}

// === impl Factory ===

impl Factory {
    /// Returns the informer that covers `predicate`. Starts it if it does not run yet and this read makes it
    /// worthwhile.
    pub fn covering(&self, resource: &Arc<Resource>, predicate: &Predicate, encoding: Encoding, read: Use) -> Coverage {
        if encoding == Encoding::Table {
            return self.covering_table(resource, predicate, read);
        }
        let Ok(coverage) = self.covered(resource, predicate, encoding, |scope| {
            let key = InformerKey { gvr: resource.gvr.clone(), scope, encoding };
            let running = self.holding(resource, &key);
            if let Some(informer) = running.as_ref().filter(|informer| informer.cache.is_ready()) {
                return Ok::<_, Infallible>(Coverage::By(informer.clone()));
            }
            let start = self.start_of(resource, predicate, &key, read);
            if let Some(informer) = running {
                if start == Start::Now {
                    informer.reflector.read_at_most(usize::MAX);
                }
                return Ok(Coverage::By(informer));
            }
            let pays = start == Start::IfWorth || read.pays;
            // A read of the past is counted, too.
            if pays && (!self.is_worth(resource, predicate, &key, read) || read.past) {
                return Ok(Coverage::None(NoCoverage::Seldom));
            }
            let form = if self.prefers_tables(resource, &key.scope) { Encoding::Table } else { encoding };
            let encoding = if encoding == Encoding::Json { form } else { encoding };
            let most = if start == Start::IfSmall { REQUESTS } else { usize::MAX };
            Ok(self.get_or_start(resource, key.scope, encoding, most, !read.watch))
        });
        if let Coverage::By(informer) = &coverage {
            informer.touch();
        }
        coverage.usable()
    }

    /// Like [`Self::covering`], but starts nothing, counts nothing, and does not touch any informer. Returns `None` if
    /// an informer would be started.
    pub fn would_cover(
        &self,
        resource: &Arc<Resource>,
        predicate: &Predicate,
        encoding: Encoding,
        read: Use,
    ) -> Option<Coverage> {
        if encoding == Encoding::Table {
            return Some(self.would_cover_table(resource, predicate));
        }
        let look = |scope| {
            let key = InformerKey { gvr: resource.gvr.clone(), scope, encoding };
            match self.holding(resource, &key) {
                Some(informer) => Ok(Coverage::By(informer)),
                None if self.is_unversioned(resource) => Ok(Coverage::None(NoCoverage::Unversioned)),
                None if self.is_full() => Ok(Coverage::None(NoCoverage::TooMany)),
                None if read.pays && (read.past || read.cost(self.rows(resource, &key.scope, predicate)) < ALSO)
                    || self.start_of(resource, predicate, &key, read) == Start::IfWorth =>
                {
                    Ok(Coverage::None(NoCoverage::Seldom))
                }
                None => Err(()),
            }
        };
        self.covered(resource, predicate, encoding, look).ok().map(Coverage::usable)
    }

    /// Whether the API server of a resource was seen to send revisions that cannot be compared.
    pub(super) fn is_unversioned(&self, resource: &Resource) -> bool {
        self.ledger().lock().knows_unversioned(&resource.gvr, Instant::now())
    }

    /// Returns the running informer that holds the objects of `key` in the present definition of their resource: the one
    /// with this key, or one of tables for readers of JSON.
    pub(super) fn holding(&self, resource: &Resource, key: &InformerKey) -> Option<Arc<Informer>> {
        let running = |key| self.running(key).filter(|informer| informer.is_of(resource));
        let own = running(key);
        if key.encoding != Encoding::Json || !holds_objects(resource) {
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

    /// Whether a first read starts the informer of `key`. If another informer already holds the objects in another
    /// encoding, only two cases start it: a watch, and a collection so small that its list costs no more than the
    /// requests for it. A read of a part of a large collection does not start an informer of the whole collection.
    fn start_of(&self, resource: &Resource, predicate: &Predicate, key: &InformerKey, read: Use) -> Start {
        if self.is_held(key) {
            let is_small = || self.rows(resource, &key.scope, predicate).whole.is_some_and(|whole| whole <= REQUESTS);
            return if read.lasts || is_small() { Start::Now } else { Start::IfWorth };
        }
        let is_of_a_part = is_narrower(predicate, key) || !read.lasts && (read.selected || read.named);
        match self.ledger().lock().size(key, Instant::now()) {
            _ if !is_of_a_part => Start::Now,
            // Started, because otherwise the apiserver would have to serve this watch. A watch of one namespace gets a
            // smaller informer.
            Some(_) if read.lasts && !is_narrower(predicate, key) => Start::Now,
            Some(_) => Start::IfWorth,
            None => Start::IfSmall,
        }
    }

    /// Whether an informer in another encoding holds the objects of `key`, or soon will. An informer that is refused by
    /// the apiserver, or has given up its state, does not count.
    fn is_held(&self, key: &InformerKey) -> bool {
        let holds_them = |informer: &Arc<Informer>| {
            let (other, reflector) = (&informer.key, &informer.reflector);
            let is_refused = reflector.is_forbidden() || reflector.is_unacceptable() || reflector.has_given_up();
            let is_of_them = other.scope == key.scope || other.scope.is_everything();
            other.gvr == key.gvr && other.encoding != key.encoding && is_of_them && !is_refused
        };
        self.informers().iter().any(holds_them)
    }

    /// Whether the recently forwarded reads, including this one, have cost as much as the informer's list. Single
    /// namespaces have their own informers. The informer of all namespaces is worth its cost when those hold half of
    /// all objects, or when there are many of them.
    fn is_worth(&self, resource: &Resource, predicate: &Predicate, key: &InformerKey, read: Use) -> bool {
        let size = self.ledger().lock().size(key, Instant::now());
        if let Some(size) = size.filter(|_| is_narrower(predicate, key)) {
            let is_of_part = |informer: &Arc<Informer>| {
                let other = &informer.key;
                other.gvr == key.gvr && other.encoding == key.encoding && other.scope.namespace.is_some()
            };
            let parts: Vec<_> = self.informers().into_iter().filter(is_of_part).collect();
            let held: usize = parts.iter().map(|informer| informer.cache.stats().objects).sum();
            return held >= size / 2 || parts.len() >= PARTS;
        }
        let cost = read.cost(self.rows(resource, &key.scope, predicate));
        self.ledger().lock().wants(key, cost, ALSO, Instant::now())
    }

    /// Whether tables of these objects are read, so that one informer should hold both.
    fn prefers_tables(&self, resource: &Resource, scope: &InformerScope) -> bool {
        let (gvr, now) = (resource.gvr.clone(), Instant::now());
        let key = InformerKey { gvr, scope: scope.clone(), encoding: Encoding::Table };
        let ledger = self.ledger().lock();
        holds_objects(resource) && ledger.knows(&key, now) && !ledger.refuses(&key.gvr, now)
    }

    /// Stops an informer of JSON that has not synced yet, in favor of an informer of tables that will also hold its
    /// objects.
    pub(super) fn give_way(&self, json: &InformerKey) {
        let starting = self.running(json).filter(|json| !json.cache.is_ready() && !json.pinned);
        if let Some(starting) = starting.filter(|json| holds_objects(&json.resource)) {
            self.remove(&starting);
        }
    }

    /// Unused informers of JSON whose objects are also held by an informer of tables.
    pub(super) fn redundant(&self) -> Vec<Arc<Informer>> {
        let is_redundant = |informer: &Arc<Informer>| {
            let key = &informer.key;
            let by_table = || self.holding(&informer.resource, key).is_some_and(|other| other.key != *key);
            key.encoding == Encoding::Json && !informer.pinned && informer.idle_for() >= REDUNDANT && by_table()
        };
        self.informers().into_iter().filter(is_redundant).collect()
    }
}

/// Whether the read is limited to one namespace and the informer holds all namespaces.
fn is_narrower(predicate: &Predicate, key: &InformerKey) -> bool {
    predicate.scope.namespace.is_some() && key.scope.namespace.is_none()
}

/// Whether the objects in the rows of a resource's tables are the same as those in a list of objects. For types that
/// are not built in, only a list of objects shows the kind of their lists.
fn holds_objects(resource: &Resource) -> bool {
    resource.origin == Origin::BuiltIn
}
