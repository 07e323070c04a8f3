//! Selections, calls and their callers, and what serves them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::call::{CallInfo, Caller};
use super::messages::SharedEvents;
use super::objects::{Cluster, Objects, Parts};
use super::pb::v1;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::{ApiResource, Discovery};
use crate::auth::audit::Audit;
use crate::auth::{self, Access, Mode};
use crate::cache::Writer;
use crate::codec::Form;
use crate::codec::json::Style;
use crate::informer::Factory;
use crate::lifecycle::drain::DrainWatch;
use crate::memory::Ledger;
use crate::meta::{Encoding, Object, Resource, ResourceVersion};
use crate::reads::{ConsistentReads, NotSynced, Reads, ReadsConfig};

/// A cluster without an identity.
pub(super) struct Nowhere;

impl Cluster for Nowhere {
    fn id(&self) -> Pin<Box<dyn Future<Output = Arc<str>> + Send + '_>> {
        Box::pin(std::future::ready("".into()))
    }
}

/// A selection of a resource of the core group.
pub(super) fn selection(resource: &str, filters: Vec<v1::Filter>) -> v1::Selection {
    let resource = v1::Resource { version: "v1".into(), resource: resource.into(), ..Default::default() };
    v1::Selection { resource: Some(resource), filters, ..Default::default() }
}

/// A call of this method, or what is known of it.
pub(super) fn call(uri: &str) -> CallInfo {
    let (audit_id, uri) = (String::new(), uri.to_owned());
    CallInfo { audit: Audit::off(), audit_id, uri, connection: 0, source: None, known: None }
}

/// A client of a trusted listener.
pub(super) fn caller() -> Caller {
    let headers = HeaderMap::new();
    let of = auth::Caller { mode: Mode::Trust, certificates: None, headers: &headers, may_impersonate: false };
    Caller::new(Access::trusting(), call("/informerd.v1.Objects/Watch"), &of, &Ledger::default()).unwrap()
}

/// An apiserver that does not answer.
pub(super) async fn away() -> Upstream {
    Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap()
}

/// The form of config maps.
pub(super) fn form(encoding: Encoding) -> Form {
    Form::new(encoding, Style::Stripped, "v1", "ConfigMap", "ConfigMapList")
}

/// The events that a window has room for, unless a test wants fewer.
pub(super) const ROOMY: usize = 600_000;

/// What serves a cache of config maps that has no state yet, with a window of at most so many events.
pub(super) fn unsynced(upstream: &Upstream, encoding: Encoding, window: usize) -> (Objects, Writer) {
    let discovery = Discovery::knowing(upstream.clone(), vec![ApiResource::core("configmaps", "ConfigMap")]);
    let factory = Factory::simple(Duration::from_secs(600), upstream.clone(), discovery);
    let mut writer = factory.put_with(Resource::simple("", "configmaps", "ConfigMap"), |limits| {
        (limits.window_max_events, limits.window_min_events) = (window, window.min(100));
    });
    writer.set_form(form(encoding));
    let not_synced = NotSynced { wait: Duration::ZERO, forward: false };
    let config = ReadsConfig { not_synced, ..ReadsConfig::simple(ConsistentReads::Cache, Duration::from_secs(3)) };
    let parts = Parts {
        reads: Reads::new(config, factory),
        cluster: Arc::new(Nowhere),
        drain: DrainWatch::never(),
        drain_spread: Duration::ZERO,
        ledger: Ledger::default(),
        shared: SharedEvents::default(),
        metrics: Arc::default(),
    };
    (Objects::new(parts), writer)
}

/// What serves a cache of config maps with these objects.
pub(super) async fn objects_of(list: Vec<Arc<Object>>) -> (Objects, Writer) {
    let (objects, mut writer) = unsynced(&away().await, Encoding::Json, ROOMY);
    writer.replace(list, ResourceVersion(20_000)).await.unwrap();
    (objects, writer)
}
