//! Informers of tables: found like all others, but started only when they are worth their cost.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::time::Instant;

use super::demand::{Rows, START, Use};
use super::{Coverage, Factory, Informer, InformerKey, InformerScope, NoCoverage};
use crate::meta::{Encoding, Resource, Scope};
use crate::selector::Predicate;

// === impl Factory ===

impl Factory {
    /// Returns the informer of tables that covers `predicate`. If it does not run, it is started when this read,
    /// together with earlier ones, makes it worthwhile.
    pub(super) fn covering_table(&self, resource: &Arc<Resource>, predicate: &Predicate, read: Use) -> Coverage {
        self.table(resource, predicate, |key| {
            let cost = read.cost(self.rows(resource, &key.scope, predicate));
            let is_worth = self.ledger().lock().wants(&key, cost, START, Instant::now());
            if !is_worth || read.past {
                return Coverage::None(NoCoverage::Seldom);
            }
            let coverage = self.get_or_start(resource, key.scope.clone(), Encoding::Table, usize::MAX, false);
            self.give_way(&InformerKey { encoding: Encoding::Json, ..key });
            coverage
        })
    }

    /// Like [`Self::covering_table`], but starts nothing and counts nothing.
    pub(super) fn would_cover_table(&self, resource: &Arc<Resource>, predicate: &Predicate) -> Coverage {
        self.table(resource, predicate, |_| Coverage::None(NoCoverage::Seldom))
    }

    /// `start` returns the informer for a key that has no running one.
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
            // Only served reads count as use: a read that is forwarded although the informer runs saves nothing.
            let running = self.running(&key).filter(|informer| informer.is_of(resource));
            Ok::<_, Infallible>(running.map_or_else(|| start(key), Coverage::By))
        };
        let Ok(coverage) = self.covered(resource, predicate, Encoding::Table, open);
        coverage.usable()
    }

    /// The number of rows of the read and of the informer, if another cache of the objects knows them.
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
}
