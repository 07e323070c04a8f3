//! A watch whose client has most objects already.

use std::collections::HashMap;

use http::HeaderMap;

use super::super::access::CallInfo;
use super::super::metrics::GrpcMetrics;
use super::super::objects::{Cluster, Parts};
use super::super::shared_events::SharedEvents;
use super::*;
use crate::auth::audit::Audit;
use crate::auth::{self, Access, Mode};
use crate::cache::{CacheConfig, Writer};
use crate::codec::json;
use crate::informer::{Factory, FactoryConfig, Rules};
use crate::lifecycle::{Fatal, drain};
use crate::memory::Ledger;
use crate::meta::{FieldTable, Gvr, Origin, Resource, Verbs};
use crate::reads::{ConsistentReads, Modes, NotSynced, ProtobufReads, ReadsConfig};
use crate::upstream::client::Upstream;
use crate::upstream::discovery::{ApiResource, Discovery};
use crate::upstream::reflector::ReflectorConfig;

const OBJECTS: usize = 5 * SKIPPED / 2;

struct Nowhere;

impl Cluster for Nowhere {
    fn id(&self) -> Pin<Box<dyn Future<Output = Arc<str>> + Send + '_>> {
        Box::pin(std::future::ready("".into()))
    }
}

fn object(number: usize) -> Arc<crate::meta::Object> {
    let item = format!(
        r#"{{"metadata":{{"name":"c{number:05}","namespace":"a","uid":"u{number}","resourceVersion":"{}"}}}}"#,
        number + 1
    );
    Arc::new(json::parse_item(item.as_bytes(), &FieldTable::default()).unwrap().0)
}

async fn objects() -> (Objects, Writer) {
    let gvr = Gvr::new("", "v1", "configmaps");
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let config = FactoryConfig {
        snapshots: None,
        rules: Rules::new(Vec::new()),
        idle_timeout: Duration::from_secs(600),
        max_informers: 100,
        cache: CacheConfig::new(gvr.clone()),
        reflector: ReflectorConfig::default(),
    };
    let verbs = Verbs { get: true, list: true, watch: true };
    let (singular, short_names) = (String::new(), Vec::new());
    let known =
        ApiResource { gvr: gvr.clone(), kind: "ConfigMap".into(), namespaced: true, verbs, singular, short_names };
    let discovery = Discovery::knowing(upstream.clone(), vec![known]);
    let factory = Factory::new(config, upstream, discovery, Fatal::new(), drain::channel().1);
    let origin = Origin::BuiltIn;
    let mut writer = factory.put(Resource { gvr, kind: "ConfigMap".into(), namespaced: true, verbs, origin });
    let style = json::Style::Stripped;
    writer.set_form(crate::codec::Form::new(crate::meta::Encoding::Json, style, "v1", "ConfigMap", "ConfigMapList"));
    writer.replace((0..OBJECTS).map(object).collect(), ResourceVersion(20_000)).await.unwrap();
    let [get, list, watch] = [ConsistentReads::Cache; 3];
    let protobuf = ProtobufReads::Json;
    let config = ReadsConfig {
        modes: Modes { get, list, watch, max_age: Duration::ZERO, protobuf, while_away: false },
        exceptions: Vec::new(),
        not_synced: NotSynced { wait: Duration::ZERO, forward: false },
        freshness_timeout: Duration::from_secs(3),
    };
    let parts = Parts {
        reads: Reads::new(config, factory),
        cluster: Arc::new(Nowhere),
        drain: drain::DrainWatch::never(),
        drain_spread: Duration::ZERO,
        ledger: Ledger::default(),
        shared: SharedEvents::default(),
        metrics: Arc::<GrpcMetrics>::default(),
    };
    (Objects::new(parts), writer)
}

fn caller() -> Caller {
    let (audit, uri) = (Audit::off(), "/informerd.v1.Objects/Watch".into());
    let call = CallInfo { audit, audit_id: String::new(), uri, source: None, known: None };
    let headers = HeaderMap::new();
    let of = auth::Caller { mode: Mode::Trust, certificates: None, headers: &headers, may_impersonate: false };
    Caller::new(Access::trusting(), call, &of)
}

/// The frames of a snapshot for a client that has all objects but these, and how often the watch paused before its end.
async fn snapshot(without: &[usize]) -> (usize, u64, usize) {
    let (objects, _writer) = objects().await;
    let known: HashMap<_, _> = (0..OBJECTS)
        .filter(|number| !without.contains(number))
        .map(|number| (format!("u{number}"), (number + 1).to_string()))
        .collect();
    let resource = v1::Resource { version: "v1".into(), resource: "configmaps".into(), ..Default::default() };
    let selection = v1::Selection { resource: Some(resource), ..Default::default() };
    let request = v1::WatchRequest { selection: Some(selection), known, ..Default::default() };
    let mut watch = objects.watch_for(&caller(), request).await.unwrap();
    let (mut events, mut pauses) = (0, 0);
    while watch.in_snapshot {
        crate::lifecycle::has_ended_turn();
        match watch.poll_frame(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(frame) => drop(frame.unwrap().unwrap()),
            Poll::Pending => {
                assert!(crate::lifecycle::has_ended_turn(), "it waits for something else");
                pauses += 1;
            }
        }
        events = watch.objects.metrics.events.get();
    }
    (pauses, events, watch.count as usize)
}

#[tokio::test]
async fn what_the_client_has_is_skipped_in_several_turns() {
    assert_eq!(snapshot(&[]).await, (2, 0, OBJECTS));
    assert_eq!(snapshot(&[5, 2 * SKIPPED, OBJECTS - 1]).await, (2, 3, OBJECTS));
}
