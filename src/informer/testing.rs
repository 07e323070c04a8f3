//! Informers whose caches are fed by a test.

use super::*;
use crate::cache::Writer;
use crate::meta::ResourceVersion;
use crate::upstream::Asked;
use crate::upstream::script::Script;

/// An apiserver that receives no requests.
pub(in crate::informer) async fn nowhere() -> Upstream {
    Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap()
}

/// An informer of ConfigMaps, of all namespaces or of one, with a scripted store. No reflector runs.
pub(in crate::informer) async fn scripted(
    script: &Script,
    namespace: Option<&str>,
    store: Option<Arc<SharedStore>>,
) -> (Arc<Informer>, Writer) {
    scripted_at(&nowhere().await, script, namespace, store)
}

/// The same at this apiserver, which is asked only for short watches.
pub(in crate::informer) fn scripted_at(
    upstream: &Upstream,
    script: &Script,
    namespace: Option<&str>,
    store: Option<Arc<SharedStore>>,
) -> (Arc<Informer>, Writer) {
    let resource = Resource::simple("", "configmaps", "ConfigMap");
    let questions = Arc::new(Questions::scripted(script.clone(), store));
    let scope = InformerScope { namespace: namespace.map(Into::into), ..InformerScope::default() };
    let (informer, writer) = fed(upstream, &ReflectorConfig::default(), resource, scope, questions, |_| {});
    (Arc::new(informer), writer)
}

/// Informers of these resources, of what a label selector selects, which know each other and share their questions.
pub(in crate::informer) async fn linked<const N: usize>(
    script: &Script,
    resources: [(Resource, &str); N],
) -> [(Arc<Informer>, Writer); N] {
    let (upstream, config) = (nowhere().await, ReflectorConfig::default());
    let questions = Arc::new(Questions::scripted(script.clone(), None));
    let all = resources.map(|(resource, labels)| {
        let scope = InformerScope { label_selector: labels.into(), ..InformerScope::default() };
        let (informer, writer) = fed(&upstream, &config, resource, scope, Arc::clone(&questions), |_| {});
        (Arc::new(informer), writer)
    });
    let informers: HashMap<_, _> =
        all.iter().map(|(informer, _)| (informer.key.clone(), Arc::clone(informer))).collect();
    all.iter().for_each(|(informer, _)| link(&informers, informer));
    all
}

/// An informer of the objects of a resource in this scope, in JSON.
fn fed(
    upstream: &Upstream,
    config: &ReflectorConfig,
    resource: Resource,
    scope: InformerScope,
    questions: Arc<Questions>,
    change: impl FnOnce(&mut CacheConfig),
) -> (Informer, Writer) {
    let resource = Arc::new(resource);
    let gvr = resource.gvr.clone();
    let mut limits = CacheConfig::new(gvr.clone());
    change(&mut limits);
    let (writer, cache) = cache::new(limits);
    let (table, namespace) = (selector::field_table(&resource), scope.namespace.clone());
    let label_selector = scope.label_selector.to_string();
    let source = ListerWatcher { table, namespace, label_selector, ..ListerWatcher::of(resource) };
    let (unused, _) = cache::new(CacheConfig::new(gvr.clone()));
    let reflector = Reflector::new(upstream.clone(), source.clone(), unused, config.clone());
    let probe = ProgressProbe::new(upstream.clone(), source.clone(), reflector.progress_sender(), questions);
    let backfiller = Backfiller::new(upstream.clone(), source.clone(), config.clone());
    lifecycle::spawn("dispatcher", cache.run_dispatcher());
    let key = InformerKey { gvr, scope, encoding: Encoding::Json };
    (Informer::new(key, source, cache, reflector.handle(), probe, backfiller, false), writer)
}

impl Informer {
    /// As if its reflector had taken a state.
    pub(crate) fn took(&self, asked: Asked, rv: ResourceVersion) {
        self.reflector.took((asked, rv));
    }
}

impl Factory {
    /// Keeps nothing over a restart, has no rules, and never drains.
    pub(crate) fn simple(idle_timeout: Duration, upstream: Upstream, discovery: Discovery) -> Self {
        let config = FactoryConfig {
            snapshots: None,
            rules: Rules::new(Vec::new()),
            idle_timeout,
            max_informers: 100,
            cache: CacheConfig::new(Gvr::new("", "v1", "configmaps")),
            reflector: ReflectorConfig::default(),
        };
        Self::new(config, upstream, discovery, Fatal::new(), DrainWatch::never())
    }

    /// Adds an informer of all objects of a resource, in JSON, and returns the writer of its cache. No reflector runs.
    pub(crate) fn put(&self, resource: Resource) -> Writer {
        self.put_with(resource, |_| {})
    }

    /// The same with other limits of the cache.
    pub(crate) fn put_with(&self, resource: Resource, change: impl FnOnce(&mut CacheConfig)) -> Writer {
        let (upstream, config) = (&self.inner.upstream, &self.inner.config.reflector);
        let (informer, writer) = fed(upstream, config, resource, InformerScope::default(), Arc::default(), change);
        self.inner.informers.lock().insert(informer.key.clone(), Arc::new(informer));
        writer
    }

    /// Adds an informer of all tables of a resource.
    pub(in crate::informer) fn put_tables(&self, resource: Resource) -> Writer {
        let (upstream, config) = (&self.inner.upstream, &self.inner.config.reflector);
        let (mut informer, writer) = fed(upstream, config, resource, InformerScope::default(), Arc::default(), |_| {});
        informer.key.encoding = Encoding::Table;
        self.inner.informers.lock().insert(informer.key.clone(), Arc::new(informer));
        writer
    }
}
