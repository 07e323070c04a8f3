//! A watch whose client has most objects already.

use std::collections::HashMap;

use http::HeaderMap;
use tokio_stream::StreamExt as _;

use super::super::access::CallInfo;
use super::super::metrics::GrpcMetrics;
use super::super::objects::{Cluster, Parts};
use super::super::shared_events::SharedEvents;
use super::super::sync::SyncStream;
use super::*;
use crate::auth::audit::Audit;
use crate::auth::{self, Access, Mode};
use crate::cache::Writer;
use crate::codec::json;
use crate::informer::Factory;
use crate::lifecycle::{drain, has_ended_turn};
use crate::memory::{Ledger, Level};
use crate::meta::{FieldTable, Gvr, Origin, Resource};
use crate::reads::{ConsistentReads, NotSynced, Reads, ReadsConfig};
use crate::upstream::client::Upstream;
use crate::upstream::discovery::{ApiResource, Discovery};

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
    objects_of((0..OBJECTS).map(object).collect()).await
}

pub(in crate::grpc) async fn objects_of(list: Vec<Arc<crate::meta::Object>>) -> (Objects, Writer) {
    let gvr = Gvr::new("", "v1", "configmaps");
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let known = ApiResource::core("configmaps", "ConfigMap");
    let verbs = known.verbs;
    let factory =
        Factory::simple(Duration::from_secs(600), upstream.clone(), Discovery::knowing(upstream, vec![known]));
    let origin = Origin::BuiltIn;
    let mut writer = factory.put(Resource { gvr, kind: "ConfigMap".into(), namespaced: true, verbs, origin });
    let style = json::Style::Stripped;
    writer.set_form(crate::codec::Form::new(crate::meta::Encoding::Json, style, "v1", "ConfigMap", "ConfigMapList"));
    writer.replace(list, ResourceVersion(20_000)).await.unwrap();
    let not_synced = NotSynced { wait: Duration::ZERO, forward: false };
    let config = ReadsConfig { not_synced, ..ReadsConfig::simple(ConsistentReads::Cache, Duration::from_secs(3)) };
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

pub(in crate::grpc) fn caller() -> Caller {
    let (audit, uri) = (Audit::off(), "/informerd.v1.Objects/Watch".into());
    let call = CallInfo { audit, audit_id: String::new(), connection: 0, uri, source: None, known: None };
    let headers = HeaderMap::new();
    let of = auth::Caller { mode: Mode::Trust, certificates: None, headers: &headers, may_impersonate: false };
    Caller::new(Access::trusting(), call, &of, &Ledger::default()).unwrap()
}

/// A watch of a client that has all objects but these.
fn request(without: &[usize]) -> v1::WatchRequest {
    let known: HashMap<_, _> = (0..OBJECTS)
        .filter(|number| !without.contains(number))
        .map(|number| (format!("u{number}"), (number + 1).to_string()))
        .collect();
    let resource = v1::Resource { version: "v1".into(), resource: "configmaps".into(), ..Default::default() };
    let selection = v1::Selection { resource: Some(resource), ..Default::default() };
    v1::WatchRequest { selection: Some(selection), known, ..Default::default() }
}

/// Polls until `is_over`. Returns how often the turn was ended before.
fn pauses(mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>, is_over: impl Fn() -> bool) -> usize {
    let mut pauses = 0;
    while !is_over() {
        has_ended_turn();
        if poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending() {
            assert!(has_ended_turn(), "it waits for something else");
            pauses += 1;
        }
    }
    pauses
}

#[tokio::test]
async fn what_the_client_has_is_skipped_in_several_turns() {
    for (without, sent) in [(&[][..], 0), (&[5, 2 * SKIPPED, OBJECTS - 1], 3)] {
        let (objects, _writer) = objects().await;
        let watch = objects.watch_for(&caller(), request(without)).await.unwrap();
        let watch = std::cell::RefCell::new(watch);
        let poll = |cx: &mut Context<'_>| watch.borrow_mut().poll_frame(cx).map(|frame| drop(frame.unwrap().unwrap()));
        let paused = pauses(poll, || !watch.borrow().in_snapshot);
        assert_eq!((paused, objects.metrics.events.get(), watch.borrow().count as usize), (2, sent, OBJECTS));
    }
}

/// The watches of a stream together do not take longer than one.
#[tokio::test]
async fn a_stream_ends_its_turn_with_the_first_of_its_watches_that_does() {
    const WATCHES: u64 = 3;
    let (objects, _writer) = objects().await;
    let requests: Vec<_> = (0..WATCHES)
        .map(|watch_id| {
            let add = v1::AddWatch { watch: Some(request(&[])), credit: None };
            Ok(v1::SyncRequest { watch_id, action: Some(v1::sync_request::Action::Add(add)) })
        })
        .collect();
    let inbound = Box::pin(tokio_stream::iter(requests).chain(tokio_stream::pending()));
    let never = Retiring(drain::DrainWatch::never());
    let mut stream = SyncStream::new(objects.clone(), caller(), inbound, &never);
    // Started, and the end of the snapshot.
    let frames = &objects.metrics.frames;
    let poll = |cx: &mut Context<'_>| stream.poll_message(cx).map(|message| drop(message.unwrap().unwrap()));
    assert_eq!(pauses(poll, || frames.get() == 2 * WATCHES), 2 * WATCHES as usize);
}

#[tokio::test(start_paused = true)]
async fn a_conflated_snapshot_comes_to_its_end_while_memory_is_short() {
    let (objects, _writer) = objects().await;
    objects.ledger.pressure().set(Level::Short);
    let request = v1::WatchRequest { conflate: true, known: HashMap::new(), ..request(&[]) };
    let mut watch = objects.watch_for(&caller(), request).await.unwrap();
    while watch.in_snapshot {
        let frame = std::future::poll_fn(|cx| watch.poll_frame(cx));
        tokio::time::timeout(Duration::from_secs(60), frame).await.expect("the next frame").unwrap().unwrap();
        assert_eq!(objects.metrics.resets.get(), 0);
    }
    assert_eq!(watch.count as usize, OBJECTS);
}

#[tokio::test]
async fn what_comes_before_a_damaged_object_is_sent() {
    use crate::packing::{MOST_READS, Packing, PackingConfig, PackingForm};
    let text = |number| {
        let metadata =
            format!(r#""name":"c{number:03}","namespace":"a","uid":"u{number}","resourceVersion":"{number}""#);
        format!(r#"{{"metadata":{{{metadata}}},"data":{{"k":"{}"}}}}"#, "x".repeat(1000))
    };
    let parse = |number| Arc::new(json::parse_item(text(number).as_bytes(), &FieldTable::default()).unwrap().0);
    let list: Vec<_> = (1..200).map(parse).collect();
    let packing = PackingConfig { form: PackingForm::Packed, threshold: 0, hot_bytes: 0 };
    let packer = Packing::new(packing).packer(None);
    packer.train(&list.iter().map(|object| object.raw().unwrap().framed()).collect::<Vec<_>>(), 1 << 20);
    list[10].pack(&packer, MOST_READS);
    list[10].spoil();
    let (objects, _writer) = objects_of(list).await;
    let request = v1::WatchRequest { known: HashMap::new(), ..request(&[]) };
    let mut watch = objects.watch_for(&caller(), request).await.unwrap();
    let error = loop {
        if let Err(error) = std::future::poll_fn(|cx| watch.poll_frame(cx)).await.expect("an error") {
            break error;
        }
    };
    assert_eq!((Status::from(error).code(), objects.metrics.events.get()), (tonic::Code::Internal, 10));
    assert!(watch.is_over());
}

#[tokio::test(start_paused = true)]
async fn what_a_client_asks_of_its_frames_has_bounds() {
    let (objects, _writer) = objects_of(Vec::new()).await;
    let resource = v1::Resource { version: "v1".into(), resource: "configmaps".into(), ..Default::default() };
    let selection = Some(v1::Selection { resource: Some(resource), ..Default::default() });
    for (max_batch, batch) in [(0, 100), (1000, 1000), (1001, 1000), (u32::MAX, 1000)] {
        let request = v1::WatchRequest { selection: selection.clone(), max_batch, ..Default::default() };
        assert_eq!(objects.watch_for(&caller(), request).await.unwrap().delivery.max_batch, batch);
    }
    let span = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    let began = tokio::time::Instant::now();
    for (delay, age) in [(span(0, 999_999_999), span(1799, 0)), (span(1, 1), span(3600, 1)), (span(1 << 30, 0), None)] {
        let selection = selection.clone();
        let request = v1::WatchRequest { selection, max_batch_delay: delay, max_age: age, ..Default::default() };
        let watch = objects.watch_for(&caller(), request).await.unwrap();
        let (delay, lasts) = (watch.delivery.max_batch_delay, watch.terms.deadline - began);
        if age == span(1799, 0) {
            assert_eq!((delay, lasts), (Duration::new(0, 999_999_999), Duration::from_secs(1799)));
        } else {
            assert!(delay == Duration::from_secs(1) && (1800..3600).contains(&lasts.as_secs()), "{lasts:?}");
        }
    }
}
