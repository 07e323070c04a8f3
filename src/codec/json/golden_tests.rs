//! Decodes recorded responses of a kube-apiserver 1.36.3 about custom resources, and writes them again. `tests/waiting/vectors.rs`
//! does so with all other types.

use bytes::Bytes;

use crate::codec::{ListMetaOut, Shape, Slices};
use crate::meta::{EventType, FieldTable, Object, ResourceVersion};

use super::*;

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("testdata/", $name))
    };
}

fn pods() -> Form {
    Form::new(Style::Stripped, "v1", "Pod", "PodList")
}

fn crontabs() -> Form {
    Form::new(Style::Inline, "stable.example.com/v1", "CronTab", "CronTabList")
}

fn parse(bytes: &str) -> (Object, TypeMeta) {
    parse_item(bytes.as_bytes(), &FieldTable::default()).unwrap()
}

fn text(slices: Slices) -> String {
    String::from_utf8(slices.into_bytes().to_vec()).unwrap()
}

fn frames(stream: &'static str) -> Vec<WatchFrame> {
    let mut decoder = WatchDecoder::new(DEFAULT_MAX_FRAME, FieldTable::default());
    decoder.push(Bytes::from_static(stream.as_bytes()));
    let frames = std::iter::from_fn(|| decoder.next().unwrap()).collect();
    assert!(!decoder.has_partial());
    frames
}

/// Writes these frames again. Each bookmark is its own template, after its values were replaced by others.
fn rewritten(form: &Form, frames: &[WatchFrame], shape: Shape) -> String {
    let mut out = String::new();
    for frame in frames {
        match frame {
            WatchFrame::Event { kind, object, .. } => {
                out += &text(event_frame(form, *kind, object, None, shape).unwrap());
            }
            WatchFrame::Bookmark { rv, initial_events_end, object, .. } => {
                let other = bookmark_frame(form, Some(object), ResourceVersion(1), !initial_events_end, Shape::Full);
                let [WatchFrame::Bookmark { object, .. }] = &decode(other)[..] else { panic!("no bookmark") };
                let frame = bookmark_frame(form, Some(object), *rv, *initial_events_end, shape);
                out += std::str::from_utf8(&frame).unwrap();
            }
            WatchFrame::Error(_) => panic!("no error expected"),
        }
    }
    out
}

fn last_bookmark(frames: &[WatchFrame]) -> ResourceVersion {
    let Some(WatchFrame::Bookmark { rv, .. }) = frames.last() else { panic!("no bookmark") };
    *rv
}

fn decode(frame: Bytes) -> Vec<WatchFrame> {
    let mut decoder = WatchDecoder::new(DEFAULT_MAX_FRAME, FieldTable::default());
    decoder.push(frame);
    std::iter::from_fn(|| decoder.next().unwrap()).collect()
}

fn list(body: &'static str) -> (Vec<Object>, ListMeta) {
    let mut decoder = ListDecoder::new(DEFAULT_MAX_FRAME, FieldTable::default());
    decoder.push(Bytes::from_static(body.as_bytes()));
    let objects = std::iter::from_fn(|| decoder.next().unwrap()).map(|(object, _)| object).collect();
    (objects, decoder.finish().unwrap())
}

fn written(form: &Form, objects: &[Object], meta: &ListMeta, shape: Shape) -> String {
    let token = (!meta.continue_token.is_empty()).then(|| meta.continue_token.clone());
    let meta = ListMetaOut {
        rv: meta.rv,
        continue_token: token,
        remaining: meta.remaining_item_count,
        ..ListMetaOut::default()
    };
    let mut out = Slices::from(list_head(form, shape, &meta, objects.is_empty()));
    for (index, object) in objects.iter().enumerate() {
        out.append(list_item(form, object, shape, index + 1 == objects.len()).unwrap());
    }
    out.push(list_tail(form, shape, &meta, objects.is_empty()));
    text(out)
}

#[test]
fn items_share_their_bytes_with_every_answer() {
    let (pod, _) = parse(golden!("pod.json"));
    let item = pod.raw().unwrap().item();
    let shares = |slices: Slices| slices.iter().any(|part| item.as_ptr_range().contains(&part.as_ptr()));
    assert!(shares(object_body(&pods(), &pod, Shape::Full).unwrap()));
    assert!(shares(event_frame(&pods(), EventType::Added, &pod, None, Shape::Full).unwrap()));
    assert!(shares(event_frame(&pods(), EventType::Deleted, &pod, Some(ResourceVersion(9)), Shape::Full).unwrap()));
    assert!(shares(list_item(&pods(), &pod, Shape::PartialObjectMetadata, false).unwrap()));
}

#[test]
fn watch_streams_are_the_apiservers() {
    let (form, full, partial) = (crontabs(), golden!("crontab.watch.jsonl"), golden!("crontab.partial.watch.jsonl"));
    let frames = frames(full);
    assert_eq!(rewritten(&form, &frames, Shape::Full), full);
    // The watch was recorded a moment later, when the watch cache was at a later revision.
    let (now, then) = (last_bookmark(&frames), last_bookmark(&self::frames(partial)));
    let partial = partial.replace(&format!("\"{then}\""), &format!("\"{now}\""));
    assert_eq!(rewritten(&form, &frames, Shape::PartialObjectMetadata), partial);
    let Some(WatchFrame::Bookmark { initial_events_end: true, type_meta, .. }) = frames.last() else {
        panic!("no end of the initial events");
    };
    assert_eq!((type_meta.style, &type_meta.kind), (form.style, &form.kind));
}

#[test]
fn leaving_a_selection_is_the_old_object_with_the_new_resource_version() {
    for (form, full, partial) in
        [(crontabs(), golden!("crontab.sel.watch.jsonl"), golden!("crontab.sel.partial.watch.jsonl"))]
    {
        let frames = frames(full);
        let [
            WatchFrame::Event { kind: EventType::Added, object: old, .. },
            WatchFrame::Event { kind: EventType::Deleted, object: gone, .. },
        ] = &frames[..]
        else {
            panic!("expected a coming and a going");
        };
        assert_ne!(old.rv, gone.rv);
        for (shape, golden) in [(Shape::Full, full), (Shape::PartialObjectMetadata, partial)] {
            let added = text(event_frame(&form, EventType::Added, old, None, shape).unwrap());
            let deleted = text(event_frame(&form, EventType::Deleted, old, Some(gone.rv), shape).unwrap());
            assert_eq!(added + &deleted, golden);
        }
    }
}

#[test]
fn lists_are_the_apiservers() {
    for (form, body, count) in [
        (crontabs(), golden!("crontab.list.json"), 1),
        (crontabs(), golden!("crontab.page.list.json"), 2),
        (crontabs(), golden!("crontab.empty.list.json"), 0),
    ] {
        let (objects, meta) = list(body);
        assert_eq!(objects.len(), count);
        assert_eq!((meta.style, &meta.list_kind), (form.style, &form.list_kind));
        assert_eq!(meta.api_version, form.api_version);
        assert_eq!(written(&form, &objects, &meta, Shape::Full), body);
    }
    let (objects, meta) = list(golden!("crontab.list.json"));
    let partial = written(&crontabs(), &objects, &meta, Shape::PartialObjectMetadata);
    assert_eq!(partial, golden!("crontab.partial.list.json"));
    let (objects, meta) = list(golden!("crontab.empty.list.json"));
    let partial = written(&crontabs(), &objects, &meta, Shape::PartialObjectMetadata);
    assert_eq!(partial, golden!("crontab.empty.partial.list.json"));
    // A list of partial objects can be decoded too, even with null items.
    assert_eq!(list(golden!("crontab.empty.partial.list.json")).0.len(), 0);
    assert_eq!(list(golden!("crontab.partial.list.json")).0.len(), 1);
    let empty = written(&pods(), &[], &meta, Shape::Full);
    assert_eq!(
        empty,
        format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{}\"}},\"items\":[]}}\n",
            meta.rv
        )
    );
}

#[test]
fn bookmarks_without_a_template() {
    let rv = ResourceVersion(12746);
    let frame =
        |form: &Form, end, shape| String::from_utf8(bookmark_frame(form, None, rv, end, shape).to_vec()).unwrap();
    assert_eq!(
        frame(&pods(), true, Shape::Full),
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"12746\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n"
    );
    assert_eq!(
        frame(&crontabs(), true, Shape::Full),
        "{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":\"stable.example.com/v1\",\"kind\":\"CronTab\",\"metadata\":{\"annotations\":{\"k8s.io/initial-events-end\":\"true\"},\"resourceVersion\":\"12746\"}}}\n"
    );
    assert_eq!(
        frame(&crontabs(), false, Shape::PartialObjectMetadataV1beta1),
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1beta1\",\"metadata\":{\"resourceVersion\":\"12746\"}}}\n"
    );
    let broken = Bytes::from_static(b"{\"metadata\":{\"resourceVersion\"");
    assert_eq!(
        bookmark_frame(&pods(), Some(&broken), rv, true, Shape::Full),
        bookmark_frame(&pods(), None, rv, true, Shape::Full)
    );
}

#[test]
fn bookmark_templates_keep_their_other_members() {
    // Servers before 1.35 write a null creationTimestamp.
    let template = Bytes::from_static(
        br#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1","creationTimestamp":null,"annotations":{"a":"b","k8s.io/initial-events-end":"true"}},"spec":{"containers":null}}"#,
    );
    let frame = |end| {
        let frame = bookmark_frame(&pods(), Some(&template), ResourceVersion(7), end, Shape::Full);
        String::from_utf8(frame.to_vec()).unwrap()
    };
    assert_eq!(
        frame(true),
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"7\",\"creationTimestamp\":null,\"annotations\":{\"a\":\"b\",\"k8s.io/initial-events-end\":\"true\"}},\"spec\":{\"containers\":null}}}\n"
    );
    assert!(frame(false).contains("\"annotations\":{\"a\":\"b\"}}"));
}
