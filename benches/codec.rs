//! The costs of bytes: an object taken in, by list and by watch, and given out, by event and by list.

#![expect(clippy::expect_used, reason = "a bench that cannot run is to stop")]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use informerd::codec::json::{self, Form, Style, parse_item};
use informerd::codec::{ListDecoder, ListMetaOut, Shape, Slices, WatchDecoder};
use informerd::meta::{Encoding, EventType, FieldTable, Gvr, Object, Origin, Resource, ResourceVersion, Verbs};
use informerd::selector::field_table;

const OBJECTS: usize = 10_000;
/// Of a list, per frame.
const BATCH: usize = 63;
/// What a connection reads at once, about.
const CHUNK: usize = 16 << 10;
/// Far above the size of any object here.
const MAX_OBJECT: usize = 16 << 20;

fn table() -> FieldTable {
    field_table(&Resource {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".into(),
        namespaced: true,
        verbs: Verbs { get: true, list: true, watch: true },
        origin: Origin::BuiltIn,
    })
}

fn form() -> Form {
    Form::new(Style::Stripped, "v1", "Pod", "PodList")
}

fn custom_form() -> Form {
    Form::new(Style::Inline, "example.com/v1", "Widget", "WidgetList")
}

/// As it stands in a list, about 4.3 kB.
fn pod(i: usize) -> String {
    let managed = |manager: &str| {
        format!(
            r#"{{"manager":"{manager}","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:labels":{{".":{{}},"f:app":{{}},"f:tier":{{}}}}}},"f:spec":{{"f:containers":{{"k:{{\"name\":\"main\"}}":{{".":{{}},"f:image":{{}},"f:name":{{}},"f:resources":{{}}}}}},"f:dnsPolicy":{{}},"f:restartPolicy":{{}}}}}}}}"#
        )
    };
    let env: Vec<String> =
        (0..20).map(|e| format!(r#"{{"name":"VARIABLE_{e}","value":"a value of some length, number {e}"}}"#)).collect();
    format!(
        r#"{{"metadata":{{"name":"pod-{i:06}","namespace":"namespace-{}","uid":"5b1a7c6e-0000-4000-8000-{i:012}","resourceVersion":"{}","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"app-{}","pod-template-hash":"7d9c5b6f8d","tier":"backend"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app","uid":"5b1a7c6e-0000-4000-8000-000000000000","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{},{}]}},"spec":{{"nodeName":"node-{}","serviceAccountName":"default","restartPolicy":"Always","schedulerName":"default-scheduler","containers":[{{"name":"main","image":"registry.example/app:{i}","env":[{}],"resources":{{"limits":{{"memory":"64Mi"}},"requests":{{"cpu":"100m"}}}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}]}},"status":{{"phase":"Running","podIP":"10.0.0.1","conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}}],"qosClass":"Burstable"}}}}"#,
        i % 100,
        1_000_000 + i,
        i % 100,
        managed("kube-controller-manager"),
        managed("kubelet"),
        i % 50,
        env.join(","),
    )
}

/// A custom resource with the same content: kind and apiVersion of its own, members sorted.
fn widget(i: usize) -> String {
    format!(r#"{{"apiVersion":"example.com/v1","kind":"Widget",{}"#, &pod(i)[1..])
}

fn watch_frame(item: &str) -> String {
    format!(r#"{{"type":"MODIFIED","object":{{"kind":"Pod","apiVersion":"v1",{}}}"#, &item[1..]) + "\n"
}

fn list(items: &[String]) -> String {
    let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"2000000"},"items":["#;
    format!("{head}{}]}}\n", items.join(","))
}

fn parse(text: &str) -> Object {
    parse_item(text.as_bytes(), &table()).expect("an object").0
}

fn taking_in(c: &mut Criterion) {
    let (table, text) = (table(), pod(1));
    let mut group = c.benchmark_group("in");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("an item", |b| b.iter(|| parse_item(black_box(text.as_bytes()), &table)));

    let frame = Bytes::from(watch_frame(&text));
    let mut decoder = WatchDecoder::new(Encoding::Json, MAX_OBJECT, table.clone());
    group.bench_function("a watch frame", |b| {
        b.iter(|| {
            decoder.push(frame.clone());
            decoder.next().expect("a frame").expect("a whole one")
        });
    });

    let body = Bytes::from(list(&(0..OBJECTS).map(pod).collect::<Vec<_>>()));
    group.throughput(Throughput::Bytes(body.len() as u64)).sample_size(10);
    group.bench_function("a list of 10k, in chunks", |b| {
        b.iter(|| {
            let mut decoder = ListDecoder::new(Encoding::Json, MAX_OBJECT, table.clone());
            let mut objects = Vec::with_capacity(OBJECTS);
            for start in (0..body.len()).step_by(CHUNK) {
                decoder.push(body.slice(start..body.len().min(start + CHUNK)));
                while let Some((object, _)) = decoder.next().expect("an item") {
                    objects.push(object);
                }
            }
            decoder.finish().expect("a list");
            objects
        });
    });
}

fn events(c: &mut Criterion) {
    let (form, object) = (form(), parse(&pod(1)));
    let mut group = c.benchmark_group("event");
    group.bench_function("full", |b| {
        b.iter(|| json::event_frame(&form, EventType::Modified, &object, None, Shape::Full));
    });
    group.bench_function("full, of an object that left the selection", |b| {
        let rv = Some(ResourceVersion(3_000_000));
        b.iter(|| json::event_frame(&form, EventType::Deleted, &object, rv, Shape::Full));
    });
    group.bench_function("metadata", |b| {
        b.iter(|| json::event_frame(&form, EventType::Modified, &object, None, Shape::PartialObjectMetadata));
    });
    let form = custom_form();
    let custom: Vec<Object> = (0..256).map(|i| parse(&widget(i))).collect();
    let mut next = custom.iter().cycle();
    group.bench_function("metadata of a custom resource, first watcher", |b| {
        b.iter(|| {
            let object = next.next().expect("a cycle");
            json::event_frame(&form, EventType::Modified, object, None, Shape::PartialObjectMetadata)
        });
    });
    group.bench_function("metadata of a custom resource, further watcher", |b| {
        b.iter(|| json::event_frame(&form, EventType::Modified, &custom[0], None, Shape::PartialObjectMetadata));
    });
    group.bench_function("bookmark", |b| {
        b.iter(|| json::bookmark_frame(&form, None, ResourceVersion(3_000_000), false, Shape::Full));
    });
}

fn lists(c: &mut Criterion) {
    let meta = ListMetaOut { rv: ResourceVersion(2_000_000), ..ListMetaOut::default() };
    let mut group = c.benchmark_group("list of 10k");
    group.sample_size(20);
    for (name, form, text) in [("pods", form(), pod as fn(usize) -> String), ("custom", custom_form(), widget)] {
        let objects: Vec<Object> = (0..OBJECTS).map(|i| parse(&text(i))).collect();
        for (shape_name, shape) in [("full", Shape::Full), ("metadata", Shape::PartialObjectMetadata)] {
            group.bench_function(format!("{name}, {shape_name}"), |b| {
                b.iter(|| {
                    let mut bytes = json::list_head(&form, shape, &meta, false).len();
                    for (at, batch) in objects.chunks(BATCH).enumerate() {
                        let mut frame = Slices::new();
                        for (i, object) in batch.iter().enumerate() {
                            let last = at * BATCH + i + 1 == OBJECTS;
                            frame.append(json::list_item(&form, object, shape, last).expect("its bytes"));
                        }
                        bytes += frame.len();
                    }
                    bytes + json::list_tail(&form, shape, &meta, false).len()
                });
            });
        }
    }
}

criterion_group!(benches, taking_in, events, lists);
criterion_main!(benches);
