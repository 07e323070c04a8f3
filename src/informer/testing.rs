//! Informers whose caches a test feeds.

use super::*;
use crate::cache::Writer;

impl Factory {
    /// Puts in an informer of all objects of a resource, in JSON, and hands out the writer of its cache. No reflector
    /// runs.
    pub(crate) fn put(&self, resource: Resource) -> Writer {
        let inner = &self.inner;
        let resource = Arc::new(resource);
        let gvr = resource.gvr.clone();
        let (writer, cache) = cache::new(CacheConfig::new(gvr.clone()));
        let source = ListerWatcher {
            table: selector::field_table(&resource),
            resource,
            namespace: None,
            field_selector: String::new(),
            label_selector: String::new(),
            encoding: Encoding::Json,
            columns: std::sync::Arc::default(),
        };
        let (config, (unused, _)) = (&inner.config.reflector, cache::new(CacheConfig::new(gvr.clone())));
        let reflector = Reflector::new(inner.upstream.clone(), source.clone(), unused, config.clone());
        let claims = reflector.progress_sender();
        let probe = ProgressProbe::new(inner.upstream.clone(), source.clone(), claims, Arc::default());
        let backfiller = Backfiller::new(inner.upstream.clone(), source.clone(), config.clone());
        lifecycle::spawn("dispatcher", cache.run_dispatcher());
        let key = InformerKey { gvr, scope: InformerScope::default(), encoding: Encoding::Json };
        let informer = Informer::new(key.clone(), source, cache, reflector.handle(), probe, backfiller, false);
        inner.informers.lock().insert(key, Arc::new(informer));
        writer
    }
}
