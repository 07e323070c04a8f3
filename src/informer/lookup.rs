//! Decides which informer covers a read.

use std::sync::Arc;

use tokio::time::Instant;

use super::key::scope_predicate;
use super::{Coverage, Factory, Informer, InformerKey, InformerScope, NoCoverage};
use crate::meta::{Encoding, Gvr, Resource};
use crate::selector::Predicate;

// === impl Factory ===

impl Factory {
    /// Returns the informer that covers `predicate`, usable or not. `open` returns the informer of a scope.
    pub(super) fn covered<E>(
        &self,
        resource: &Arc<Resource>,
        predicate: &Predicate,
        encoding: Encoding,
        open: impl Fn(InformerScope) -> Result<Coverage, E>,
    ) -> Result<Coverage, E> {
        let gvr = &resource.gvr;
        if self.excludes(gvr) {
            return Ok(Coverage::None(NoCoverage::Excluded));
        }
        if !(resource.verbs.list && resource.verbs.watch) {
            return Ok(Coverage::None(NoCoverage::NotReadable));
        }
        let permitted = |coverage| match coverage {
            Coverage::By(informer) if informer.reflector.is_forbidden() => Coverage::None(NoCoverage::Forbidden),
            other => other,
        };
        let configured = self.rules().scopes(gvr);
        if !configured.is_empty() {
            for scope in configured {
                if scope_predicate(resource, &scope).is_some_and(|selects| predicate.implies(&selects)) {
                    return Ok(permitted(open(scope)?));
                }
            }
            return Ok(Coverage::None(NoCoverage::OutOfScope));
        }
        let namespace = predicate.scope.namespace.clone().filter(|_| resource.namespaced);
        let scope = namespace.map(|namespace| InformerScope { namespace: Some(namespace), ..Default::default() });
        if let Some(scope) = &scope
            && let Some(informer) = self.of_namespace(resource, scope, encoding)
        {
            return Ok(Coverage::By(informer));
        }
        let everywhere = permitted(open(InformerScope::default())?);
        let is_narrower = match &everywhere {
            // Forbidden for all namespaces, but perhaps allowed in the namespace of the request.
            Coverage::None(NoCoverage::Forbidden) => true,
            // Holding all namespaces would cost too much.
            Coverage::None(NoCoverage::Seldom) => encoding == Encoding::Table || self.is_in_parts(gvr, encoding),
            _ => false,
        };
        match scope.filter(|_| is_narrower) {
            Some(scope) => Ok(permitted(open(scope)?)),
            None => Ok(everywhere),
        }
    }

    /// Whether single namespaces should have their own informers. They may take up to half of the places.
    fn is_in_parts(&self, gvr: &Gvr, encoding: Encoding) -> bool {
        let parts = self.informers().iter().filter(|informer| informer.key.scope.namespace.is_some()).count();
        if parts >= self.most_informers() / 2 {
            return false;
        }
        let key = InformerKey { gvr: gvr.clone(), scope: InformerScope::default(), encoding };
        self.ledger().lock().size(&key, Instant::now()).is_some()
    }

    /// Returns the informer of a namespace. Its readers stay with it while it runs, even if an informer of all
    /// namespaces runs by now: they know its revisions, and its window reaches back to them.
    fn of_namespace(
        &self,
        resource: &Arc<Resource>,
        scope: &InformerScope,
        encoding: Encoding,
    ) -> Option<Arc<Informer>> {
        let key = InformerKey { gvr: resource.gvr.clone(), scope: scope.clone(), encoding };
        let is_usable = |informer: &Arc<Informer>| {
            let refused = informer.reflector.is_forbidden() || informer.reflector.is_unacceptable();
            informer.cache.is_ready() && !refused
        };
        self.holding(resource, &key).filter(is_usable)
    }

    /// Returns the encoding of a cache that holds what `predicate` selects: JSON if both encodings are held, or none.
    pub fn held(&self, resource: &Resource, predicate: &Predicate) -> Encoding {
        let covers = |scope| scope_predicate(resource, scope).is_some_and(|selects| predicate.implies(&selects));
        let informers = self.informers();
        let mut ready = informers
            .iter()
            .filter(|informer| informer.key.gvr == resource.gvr && informer.cache.is_ready())
            .filter(|informer| covers(&informer.key.scope))
            .map(|informer| informer.key.encoding)
            .peekable();
        let any = ready.peek().is_some();
        if any && ready.all(|encoding| encoding == Encoding::Protobuf) { Encoding::Protobuf } else { Encoding::Json }
    }
}
