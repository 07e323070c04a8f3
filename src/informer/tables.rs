//! Informers of tables: found like all others, but started only when they are worth it.

use std::sync::Arc;

use tokio::time::Instant;

use super::demand::{Rows, Use, is_too_dear};
use super::factory::scope_predicate;
use super::{Coverage, Factory, Informer, InformerKey, InformerScope, NoCoverage};
use crate::meta::{Encoding, Resource, Scope};
use crate::selector::Predicate;

// === impl Factory ===

impl Factory {
    /// The informer of tables that covers `predicate`. One that does not run is started if this read, with others before
    /// it, makes it worth that.
    pub fn covering_table(&self, resource: &Arc<Resource>, predicate: &Predicate, read: Use) -> Coverage {
        if self.ledger().lock().refuses(&resource.gvr, Instant::now()) {
            return Coverage::None(NoCoverage::Cells);
        }
        self.find_table(resource, predicate, read).usable()
    }

    fn find_table(&self, resource: &Arc<Resource>, predicate: &Predicate, read: Use) -> Coverage {
        let gvr = &resource.gvr;
        if self.excludes(gvr) {
            return Coverage::None(NoCoverage::Excluded);
        }
        let configured = self.rules().scopes(gvr);
        if !configured.is_empty() {
            for scope in configured {
                if scope_predicate(resource, &scope).is_some_and(|selects| predicate.implies(&selects)) {
                    return self.table_of(resource, scope, predicate, read);
                }
            }
            return Coverage::None(NoCoverage::OutOfScope);
        }
        let everywhere = self.table_of(resource, InformerScope::default(), predicate, read);
        let refused = match &everywhere {
            Coverage::By(informer) if informer.cache.is_ready() && !informer.reflector.is_forbidden() => {
                return everywhere;
            }
            Coverage::By(informer) => informer.reflector.is_forbidden(),
            Coverage::None(NoCoverage::Seldom) => true,
            Coverage::None(_) => false,
        };
        let namespace = predicate.scope.namespace.clone().filter(|_| resource.namespaced);
        let Some(namespace) = namespace else {
            return match everywhere {
                Coverage::By(informer) if refused && informer.reflector.is_forbidden() => {
                    Coverage::None(NoCoverage::Forbidden)
                }
                other => other,
            };
        };
        let scope = InformerScope { namespace: Some(namespace), ..Default::default() };
        if !refused {
            return self.running(resource, &scope).map_or(everywhere, Coverage::By);
        }
        match self.table_of(resource, scope, predicate, read) {
            Coverage::By(informer) if informer.reflector.is_forbidden() => Coverage::None(NoCoverage::Forbidden),
            other => other,
        }
    }

    /// The informer of this scope, if it runs or is worth starting.
    fn table_of(&self, resource: &Arc<Resource>, scope: InformerScope, predicate: &Predicate, read: Use) -> Coverage {
        if let Some(informer) = self.running_any(resource, &scope) {
            return Coverage::By(informer);
        }
        let key = InformerKey { gvr: resource.gvr.clone(), scope: scope.clone(), encoding: Encoding::Table };
        let cost = read.cost(self.rows(resource, &scope, predicate));
        if !self.ledger().lock().wants(&key, cost, Instant::now()) {
            return Coverage::None(NoCoverage::Seldom);
        }
        self.get_or_start(resource, scope, Encoding::Table)
    }

    fn running_any(&self, resource: &Resource, scope: &InformerScope) -> Option<Arc<Informer>> {
        let key = InformerKey { gvr: resource.gvr.clone(), scope: scope.clone(), encoding: Encoding::Table };
        let informer = self.find(&key)?;
        informer.touch();
        Some(informer)
    }

    fn running(&self, resource: &Resource, scope: &InformerScope) -> Option<Arc<Informer>> {
        self.running_any(resource, scope).filter(|informer| informer.cache.is_ready())
    }

    /// How many rows the read and the informer are of, where another cache of the objects knows it.
    fn rows(&self, resource: &Resource, scope: &InformerScope, predicate: &Predicate) -> Rows {
        let narrower = scope.namespace != predicate.scope.namespace;
        let of_scope = |informer: &Arc<Informer>| {
            let key = &informer.key;
            let wider = key.scope == *scope || key.scope.is_everything();
            key.gvr == resource.gvr && wider && key.encoding != Encoding::Table && informer.cache.is_ready()
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
