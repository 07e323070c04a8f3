//! Informers of tables: found like all others, but started only when they are worth it.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::time::Instant;

use super::demand::{Rows, START, Use, is_too_dear};
use super::{Coverage, Factory, Informer, InformerKey, InformerScope, NoCoverage};
use crate::meta::{Encoding, Resource, Scope};
use crate::selector::Predicate;

// === impl Factory ===

impl Factory {
    /// The informer of tables that covers `predicate`. One that does not run is started if this read, with others before
    /// it, makes it worth that.
    pub(super) fn covering_table(&self, resource: &Arc<Resource>, predicate: &Predicate, read: Use) -> Coverage {
        self.table(resource, predicate, |key| {
            let cost = read.cost(self.rows(resource, &key.scope, predicate));
            if !self.ledger().lock().wants(&key, cost, START, Instant::now()) {
                return Coverage::None(NoCoverage::Seldom);
            }
            let coverage = self.get_or_start(resource, key.scope.clone(), Encoding::Table, usize::MAX);
            self.give_way(&InformerKey { encoding: Encoding::Json, ..key });
            coverage
        })
    }

    /// As [`Self::covering_table`], but nothing is started, and nothing is counted.
    pub(super) fn would_cover_table(&self, resource: &Arc<Resource>, predicate: &Predicate) -> Coverage {
        self.table(resource, predicate, |_| Coverage::None(NoCoverage::Seldom))
    }

    /// `start` gives the informer of a key for which none runs.
    fn table(
        &self,
        resource: &Arc<Resource>,
        predicate: &Predicate,
        start: impl Fn(InformerKey) -> Coverage,
    ) -> Coverage {
        if self.ledger().lock().refuses(&resource.gvr, Instant::now()) {
            return Coverage::None(NoCoverage::Cells);
        }
        let open = |scope| {
            let key = InformerKey { gvr: resource.gvr.clone(), scope, encoding: Encoding::Table };
            // Only what it serves is use: a read that is forwarded although it runs saves nothing.
            Ok::<_, Infallible>(self.running(&key).map_or_else(|| start(key), Coverage::By))
        };
        let Ok(coverage) = self.covered(resource, predicate, Encoding::Table, open);
        coverage.usable()
    }

    /// How many rows the read and the informer are of, where another cache of the objects knows it.
    pub(super) fn rows(&self, resource: &Resource, scope: &InformerScope, predicate: &Predicate) -> Rows {
        let narrower = scope.namespace != predicate.scope.namespace;
        let of_scope = |informer: &Arc<Informer>| {
            let key = &informer.key;
            let wider = key.scope == *scope || key.scope.is_everything();
            key.gvr == resource.gvr && wider && informer.cache.is_ready()
        };
        let informer = self.informers().into_iter().find(of_scope);
        let Some(snapshot) = informer.and_then(|informer| informer.cache.snapshot()) else {
            return Rows { narrower, ..Rows::default() };
        };
        let count = |namespace: &Option<Arc<str>>| match namespace {
            None => snapshot.len(),
            Some(_) => snapshot.range(&Scope { namespace: namespace.clone(), name: None }, None).count(),
        };
        Rows { whole: Some(count(&scope.namespace)), asked: Some(count(&predicate.scope.namespace)), narrower }
    }

    /// Informers of tables whose events cost the apiserver more than their readers have saved it since.
    pub(super) fn dear_tables(&self) -> Vec<Arc<Informer>> {
        let is_dear = |informer: &Arc<Informer>| {
            // While a watch is open, all of them are used.
            let unused = !informer.idle_for().is_zero();
            let objects = informer.cache.stats().objects;
            unused && informer.key.encoding == Encoding::Table && is_too_dear(informer.events_unused(), objects)
        };
        self.informers().into_iter().filter(is_dear).collect()
    }
}
