//! Compares what is read and written with messages of another protobuf implementation.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::oracle::{self, envelope, frame, list_meta, metadata, pod, text};
use super::*;
use crate::codec::json::WatchFrame;
use crate::codec::{CodecError, ListMetaOut, Shape};
use crate::meta::{
    EventType, FieldTable, Gvr, Object, Origin, Resource, ResourceVersion, Status, StatusDetails, Verbs, errors,
};
use crate::selector::field_table;

const SHAPES: [Shape; 3] = [Shape::Full, Shape::PartialObjectMetadata, Shape::PartialObjectMetadataV1beta1];
const PARTIAL: &str = "PartialObjectMetadata";

fn table() -> FieldTable {
    field_table(&Resource {
        gvr: Gvr::new("", "v1", "pods"),
        kind: "Pod".into(),
        namespaced: true,
        verbs: Verbs::default(),
        origin: Origin::BuiltIn,
    })
}

fn form() -> Form {
    Form::new("v1", "Pod", "PodList")
}

fn object(pod: &oracle::Pod) -> Object {
    parse_item(&pod.encode_to_vec(), &table()).unwrap()
}

/// The object in a shape: its type and its message.
fn shaped(pod: &oracle::Pod, shape: Shape) -> Vec<u8> {
    let partial = oracle::Partial { metadata: pod.metadata.clone() };
    match shape {
        Shape::Full | Shape::Table(_) => envelope("v1", "Pod", pod),
        Shape::PartialObjectMetadata => envelope("meta.k8s.io/v1", PARTIAL, &partial),
        Shape::PartialObjectMetadataV1beta1 => envelope("meta.k8s.io/v1beta1", PARTIAL, &partial),
    }
}

fn listed(pods: &[oracle::Pod], metadata: oracle::ListMeta, shape: Shape) -> Vec<u8> {
    let metadata = Some(metadata);
    let items = pods.iter().map(|pod| oracle::Partial { metadata: pod.metadata.clone() }).collect();
    match shape {
        Shape::Full | Shape::Table(_) => envelope("v1", "PodList", &oracle::PodList { metadata, items: pods.to_vec() }),
        Shape::PartialObjectMetadata => {
            envelope("meta.k8s.io/v1", "PartialObjectMetadataList", &oracle::PartialList { metadata, items })
        }
        Shape::PartialObjectMetadataV1beta1 => {
            let list = oracle::PartialListV1beta1 { metadata, items };
            envelope("meta.k8s.io/v1beta1", "PartialObjectMetadataList", &list)
        }
    }
}

fn written_list(objects: &[Object], mut meta: ListMetaOut, shape: Shape) -> Vec<u8> {
    meta.items_len = objects.iter().map(|object| item_len(&form(), object, shape).unwrap()).sum();
    let mut out = list_head(&form(), shape, &meta).to_vec();
    for object in objects {
        let item = list_item(&form(), object, shape).unwrap();
        assert_eq!(item.len() as u64, item_len(&form(), object, shape).unwrap());
        out.extend_from_slice(&item.into_bytes());
    }
    out.extend_from_slice(&list_tail(shape, &meta));
    out
}

#[test]
fn an_object_and_what_reads_need_of_it() {
    let pod = pod("p", 1234);
    let object = object(&pod);
    assert_eq!((object.key.as_str(), object.rv.0, object.attributes.uid()), ("default/p", 1234, "uid-p"));
    assert_eq!(object.attributes.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    let table = table();
    let value = |label: &str| object.attributes.field(table.index_of(label).unwrap());
    for (label, expected) in [
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("spec.hostNetwork", "true"),
        ("spec.schedulerName", ""),
        ("status.phase", "Running"),
        ("status.podIP", "10.0.0.1"),
    ] {
        assert_eq!(value(label), expected, "{label}");
    }
    assert_eq!(object.raw().unwrap().item(), pod.encode_to_vec());
    assert_eq!(object.raw().unwrap().metadata(), pod.metadata.unwrap().encode_to_vec());
    assert_eq!(object.raw().unwrap().slice(object.raw().unwrap().rv_range()), "1234");
}

#[test]
fn missing_values_are_those_of_the_table() {
    let bare = oracle::Pod { metadata: Some(metadata("a", "p", 1, &[])), ..Default::default() };
    let (object, table) = (object(&bare), table());
    let value = |label: &str| object.attributes.field(table.index_of(label).unwrap());
    assert_eq!((value("spec.hostNetwork"), value("status.podIP"), value("spec.nodeName")), ("false", "", ""));
    let old = oracle::PodStatus { pod_ip: text("10.0.0.9"), ..Default::default() };
    let bare = oracle::Pod { status: Some(old), ..bare };
    assert_eq!(self::object(&bare).attributes.field(table.index_of("status.podIP").unwrap()), "10.0.0.9");
}

#[test]
fn what_is_no_object() {
    let table = FieldTable::default();
    let of = |metadata: oracle::ObjectMeta| {
        let pod = oracle::Pod { metadata: Some(metadata), ..Default::default() };
        parse_item(&pod.encode_to_vec(), &table).unwrap_err()
    };
    assert_eq!(of(metadata("a", "", 1, &[])), CodecError::Invalid("metadata.name"));
    assert_eq!(of(metadata("a", "x/y", 1, &[])), CodecError::Invalid("metadata.name"));
    assert_eq!(of(metadata("a/b", "x", 1, &[])), CodecError::Invalid("metadata.namespace"));
    let without = oracle::ObjectMeta { resource_version: None, ..metadata("a", "x", 1, &[]) };
    assert_eq!(of(without), CodecError::Missing("metadata.resourceVersion"));
    let words = oracle::ObjectMeta { resource_version: text("new"), ..metadata("a", "x", 1, &[]) };
    assert_eq!(of(words), CodecError::Invalid("metadata.resourceVersion"));
    let whole = pod("p", 5).encode_to_vec();
    assert_eq!(parse_item(&whole[..whole.len() - 1], &table).unwrap_err(), CodecError::Truncated);
    assert_eq!(parse_item(&[&whole[..], &whole].concat(), &table).unwrap_err(), CodecError::Duplicate("metadata"));
    assert_eq!(parse_item(b"", &table).unwrap_err(), CodecError::Missing("metadata"));
    // A length that uses more bytes than necessary could not be rewritten.
    let metadata = metadata("a", "p", 1, &[]).encode_to_vec();
    let long = [&[0x0a, u8::try_from(metadata.len()).unwrap() | 0x80, 0][..], &metadata].concat();
    assert_eq!(parse_item(&long, &table).unwrap_err(), CodecError::Invalid("metadata"));
}

#[test]
fn bodies_and_events() {
    let (pod, form) = (pod("p", 999), form());
    let object = object(&pod);
    for shape in SHAPES {
        assert_eq!(object_bytes(&form, &object, None, shape).unwrap().into_bytes(), shaped(&pod, shape), "{shape:?}");
        for kind in [EventType::Added, EventType::Modified, EventType::Deleted] {
            let written = event_frame(&form, kind, &object, None, shape).unwrap().into_bytes();
            assert_eq!(written, frame(kind.as_str(), shaped(&pod, shape)), "{shape:?}");
        }
        for rv in [7, 1000, u64::MAX >> 1] {
            let mut pod = pod.clone();
            pod.metadata.as_mut().unwrap().resource_version = text(&rv.to_string());
            let written = event_frame(&form, EventType::Deleted, &object, Some(ResourceVersion(rv)), shape);
            assert_eq!(written.unwrap().into_bytes(), frame("DELETED", shaped(&pod, shape)), "{rv} {shape:?}");
            let written = object_bytes(&form, &object, Some(ResourceVersion(rv)), shape);
            assert_eq!(written.unwrap().into_bytes(), shaped(&pod, shape), "{rv} {shape:?}");
        }
    }
}

#[test]
fn a_length_that_grows_by_a_byte_moves_all_others() {
    for size in 80..140 {
        let mut pod = oracle::Pod { metadata: Some(metadata("a", "p", 99, &[])), ..Default::default() };
        pod.metadata.as_mut().unwrap().uid = text(&"u".repeat(size));
        let object = object(&pod);
        pod.metadata.as_mut().unwrap().resource_version = text("100");
        let written = event_frame(&form(), EventType::Deleted, &object, Some(ResourceVersion(100)), Shape::Full);
        assert_eq!(written.unwrap().into_bytes(), frame("DELETED", shaped(&pod, Shape::Full)), "{size}");
    }
}

#[test]
fn lists() {
    let pods: Vec<_> = (0..3).map(|i| pod(&format!("p{i}"), 90 + i)).collect();
    let objects: Vec<_> = pods.iter().map(object).collect();
    let rv = ResourceVersion(4711);
    for shape in SHAPES {
        let plain = ListMetaOut { rv, ..Default::default() };
        let paged =
            ListMetaOut { rv, continue_token: Some("next".into()), remaining: Some(500), ..ListMetaOut::default() };
        for (meta, token, remaining) in [(plain, "", None), (paged, "next", Some(500))] {
            for pods in [&pods[..], &[]] {
                let expected = listed(pods, list_meta("4711", token, remaining), shape);
                assert_eq!(written_list(&objects[..pods.len()], meta.clone(), shape), expected, "{shape:?}");
            }
        }
    }
}

#[test]
fn bookmarks() {
    let zero = |rv: &str, annotated: bool| oracle::ObjectMeta {
        name: text(""),
        generate_name: text(""),
        namespace: text(""),
        self_link: text(""),
        uid: text(""),
        resource_version: text(rv),
        generation: Some(0),
        creation_timestamp: Some(oracle::Time::default()),
        annotations: annotated.then(|| ("k8s.io/initial-events-end".into(), "true".into())).into_iter().collect(),
        ..Default::default()
    };
    // The zero value of a Pod, with the fields that the oracle knows.
    let spec = oracle::PodSpec { node_name: text(""), host_network: Some(false), ..Default::default() };
    let bookmark = |rv: &str, annotated| oracle::Pod {
        metadata: Some(zero(rv, annotated)),
        spec: Some(spec.clone()),
        status: Some(oracle::PodStatus::default()),
    };
    let mut decoder = WatchDecoder::new(1 << 20, table());
    decoder.push(frame("BOOKMARK", envelope("v1", "Pod", &bookmark("77", true))).into());
    let Ok(Some(WatchFrame::Bookmark { rv, initial_events_end: true, object, .. })) = decoder.next() else { panic!() };
    assert_eq!(rv.0, 77);
    for (rv, annotated) in [(77, true), (123_456, false), (8, true)] {
        let expected = bookmark(&rv.to_string(), annotated);
        for shape in SHAPES {
            let written = bookmark_frame(&form(), Some(&object), ResourceVersion(rv), annotated, shape);
            assert_eq!(written, frame("BOOKMARK", shaped(&expected, shape)), "{rv} {shape:?}");
        }
    }
    // A type whose zero value has its own annotations, sorted before and after the marker annotation.
    let annotated = |rv: &str, marked| {
        let mut bookmark = bookmark(rv, marked);
        let annotations = &mut bookmark.metadata.as_mut().unwrap().annotations;
        annotations.extend([("a.generation".into(), "0".into()), ("z".into(), String::new())]);
        bookmark
    };
    let template: Bytes = annotated("7", false).encode_to_vec().into();
    for marked in [true, false] {
        let written = bookmark_frame(&form(), Some(&template), ResourceVersion(1000), marked, Shape::Full);
        assert_eq!(written, frame("BOOKMARK", shaped(&annotated("1000", marked), Shape::Full)));
    }
    let bare = oracle::Pod { metadata: Some(zero("9", false)), ..Default::default() };
    for template in [None, Some(Bytes::from_static(b"\xff\xff")), Some(Bytes::new())] {
        let written = bookmark_frame(&form(), template.as_ref(), ResourceVersion(9), false, Shape::Full);
        assert_eq!(written, frame("BOOKMARK", shaped(&bare, Shape::Full)));
    }
}

/// The converted metadata of a custom resource equals what another implementation writes.
#[test]
fn metadata_of_json() {
    let json = br#"{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"annotations":{"z":"<\u00e9> \u2028","a":"-"},
        "creationTimestamp":"2026-01-02T03:04:05Z","generation":2,"labels":{"b":"2","a":"1"},"managedFields":null,
        "name":"one","namespace":"a","resourceVersion":"99","uid":"uid-one"},"spec":{}}"#;
    let object = crate::codec::json::parse_item(json, &FieldTable::default()).unwrap().0;
    let mut metadata = metadata("a", "one", 99, &[("a", "1"), ("b", "2")]);
    metadata.generation = Some(2);
    metadata.creation_timestamp = Some(oracle::Time { seconds: Some(1_767_323_045), nanos: Some(0) });
    metadata.annotations = [("a".into(), "-".into()), ("z".into(), "<é> \u{2028}".into())].into();
    let form = Form::of_json("stable.example.com/v1", "CronTab", "CronTabList");
    for rv in [None, Some(ResourceVersion(1000))] {
        metadata.resource_version = text(&rv.map_or(99, |rv| rv.0).to_string());
        let pod = oracle::Pod { metadata: Some(metadata.clone()), ..Default::default() };
        for shape in [Shape::PartialObjectMetadata, Shape::PartialObjectMetadataV1beta1] {
            assert_eq!(object_bytes(&form, &object, rv, shape).unwrap().into_bytes(), shaped(&pod, shape));
            let written = event_frame(&form, EventType::Deleted, &object, rv, shape).unwrap().into_bytes();
            assert_eq!(written, frame("DELETED", shaped(&pod, shape)));
        }
    }
    let item = list_item(&form, &object, Shape::PartialObjectMetadata).unwrap();
    assert_eq!(item.len() as u64, item_len(&form, &object, Shape::PartialObjectMetadata).unwrap());
    // The apiserver writes the key and the value of a map entry even when they are empty. The other implementation
    // would not.
    let json =
        br#"{"apiVersion":"v1","kind":"X","metadata":{"annotations":{"a":""},"name":"n","resourceVersion":"1"}}"#;
    let object = crate::codec::json::parse_item(json, &FieldTable::default()).unwrap().0;
    let item = list_item(&form, &object, Shape::PartialObjectMetadata).unwrap().into_bytes();
    assert!(item.windows(7).any(|bytes| bytes == b"b\x05\n\x01a\x12\0"), "{item:?}");
}

fn oracle_status(status: &Status) -> oracle::Status {
    let cause = |cause: &crate::meta::StatusCause| oracle::StatusCause {
        reason: text(&cause.reason),
        message: text(&cause.message),
        field: text(&cause.field),
    };
    oracle::Status {
        metadata: Some(list_meta("", &status.metadata.continue_token, None)),
        status: text(&status.status),
        message: text(&status.message),
        reason: text(&status.reason),
        details: status.details.as_ref().map(|details| oracle::StatusDetails {
            name: text(&details.name),
            group: text(&details.group),
            kind: text(&details.kind),
            causes: details.causes.iter().map(cause).collect(),
            retry_after_seconds: Some(details.retry_after_seconds.cast_signed()),
            uid: text(&details.uid),
        }),
        code: Some(status.code.into()),
    }
}

#[test]
fn errors_as_bodies_and_in_streams() {
    let mut paged = errors::expired_watch(1, 2);
    "next".clone_into(&mut paged.metadata.continue_token);
    let mut details = StatusDetails { uid: "u".into(), ..Default::default() };
    details.name = "<x>".into();
    for status in [
        errors::not_found(&Gvr::new("apps", "v1", "deployments"), "web"),
        errors::too_large_resource_version(9, 5),
        paged,
        errors::expired_watch(1, 2),
        errors::resource_not_found(),
        Status::failure(500, "", "odd").with_details(details),
    ] {
        let expected = envelope("v1", "Status", &oracle_status(&status));
        assert_eq!(status_body(&status), expected, "{}", status.message);
        assert_eq!(read_status(&expected), Ok(status.clone()));
        assert_eq!(error_frame(&status), frame("ERROR", expected.clone()));
        let mut decoder = WatchDecoder::new(1 << 20, table());
        decoder.push(frame("ERROR", expected).into());
        assert!(matches!(decoder.next(), Ok(Some(WatchFrame::Error(read))) if read == status));
    }
    assert!(matches!(read_status(&envelope("v1", "Pod", &pod("p", 1))), Err(CodecError::NotAStatus(_))));
}

/// Decodes a list that arrives in chunks of these sizes, and returns everything that the decoder produces.
fn decode_list(
    bytes: &[u8],
    sizes: &[usize],
    max: usize,
) -> Result<(Vec<Object>, crate::codec::json::ListMeta), CodecError> {
    let mut decoder = ListDecoder::new(max, table());
    let (mut rest, mut sizes) = (bytes, sizes.iter().copied().cycle());
    let mut objects = Vec::new();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(object) = decoder.next()? {
            objects.push(object);
        }
        rest = after;
    }
    Ok((objects, decoder.finish()?))
}

fn decode_watch(bytes: &[u8], sizes: &[usize], max: usize) -> Result<Vec<String>, CodecError> {
    let mut decoder = WatchDecoder::new(max, table());
    let (mut rest, mut sizes) = (bytes, sizes.iter().copied().cycle());
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        decoder.push(Bytes::copy_from_slice(chunk));
        while let Some(frame) = decoder.next()? {
            frames.push(format!("{frame:?}"));
        }
        rest = after;
    }
    if decoder.has_partial() { Err(CodecError::Truncated) } else { Ok(frames) }
}

#[test]
fn a_list_has_bounds_and_an_end() {
    let pods = [pod("a", 1), pod("b", 2)];
    let whole = listed(&pods, list_meta("9", "", None), Shape::Full);
    let (objects, meta) = decode_list(&whole, &[], 1 << 20).unwrap();
    assert_eq!((objects.len(), meta.rv.0, &*meta.list_kind, &*meta.api_version), (2, 9, "PodList", "v1"));
    assert_eq!(decode_list(&whole, &[], 20).unwrap_err(), CodecError::TooLarge { limit: 20 });
    for cut in 0..whole.len() {
        // The two empty fields at the end may be missing.
        let complete = cut == whole.len() - 4 || cut == whole.len() - 2;
        assert_eq!(decode_list(&whole[..cut], &[], 1 << 20).is_ok(), complete, "{cut}");
    }
    assert!(decode_list(&[&whole[..], b"x"].concat(), &[], 1 << 20).is_err());
    assert!(decode_list(b"{\"kind\":\"PodList\"}", &[], 1 << 20).is_err());
    let error = envelope("v1", "Status", &oracle_status(&errors::expired_watch(1, 2)));
    assert!(decode_list(&error, &[], 1 << 20).is_err(), "no revision");
    // An item that extends beyond its list.
    let mut bad = whole.clone();
    let at = bad.windows(2).position(|pair| pair == b"p\x12").unwrap_or(4 + 2 + 4 + 9 + 1);
    bad[at] = bad[at].wrapping_sub(1);
    assert!(decode_list(&bad, &[], 1 << 20).is_err());
}

#[test]
fn a_frame_has_a_bound_and_a_type() {
    let good = frame("ADDED", envelope("v1", "Pod", &pod("p", 4)));
    assert_eq!(decode_watch(&good, &[], 1 << 20).unwrap().len(), 1);
    assert_eq!(decode_watch(&good, &[], 30).unwrap_err(), CodecError::TooLarge { limit: 30 });
    assert_eq!(decode_watch(&good[..good.len() - 1], &[], 1 << 20).unwrap_err(), CodecError::Truncated);
    assert_eq!(decode_watch(b"\xff\xff\xff\xff", &[], 16 << 20).unwrap_err(), CodecError::TooLarge { limit: 16 << 20 });
    let other = frame("MELTED", envelope("v1", "Pod", &pod("p", 4)));
    assert_eq!(decode_watch(&other, &[], 1 << 20).unwrap_err(), CodecError::UnknownEventType("MELTED".into()));
    let bare = frame("ADDED", pod("p", 4).encode_to_vec());
    assert_eq!(decode_watch(&bare, &[], 1 << 20).unwrap_err(), CodecError::Missing("k8s prefix"));
    let html = b"<html>nope</html>";
    assert!(matches!(decode_watch(html, &[], 1 << 20), Err(CodecError::TooLarge { .. })));
    let empty = [0, 0, 0, 0];
    assert_eq!(decode_watch(&empty, &[], 1 << 20).unwrap_err(), CodecError::Missing("type"));
}

fn any_pod() -> impl Strategy<Value = oracle::Pod> {
    let labels = proptest::collection::btree_map("[a-z/.]{0,8}", ".{0,12}", 0..5);
    ("[a-z0-9.-]{1,20}", "[a-z]{0,8}", 1u64..u64::MAX >> 1, labels, ".{0,200}").prop_map(
        |(name, namespace, rv, labels, text)| {
            let mut pod = pod(&name, rv);
            let metadata = pod.metadata.as_mut().unwrap();
            (metadata.namespace, metadata.labels) = (Some(namespace), labels);
            metadata.annotations.insert("note".into(), text.clone());
            pod.spec.as_mut().unwrap().node_name = Some(text);
            pod
        },
    )
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        pods in proptest::collection::vec(any_pod(), 0..6),
        sizes in proptest::collection::vec(1usize..80, 1..6),
        rv in 1u64..u64::MAX >> 1,
    ) {
        let rv_text = rv.to_string();
        let list = listed(&pods, list_meta(&rv_text, "t", Some(3)), Shape::Full);
        let (objects, meta) = decode_list(&list, &sizes, 1 << 20).unwrap();
        prop_assert_eq!((meta.rv.0, meta.remaining_item_count, objects.len()), (rv, Some(3), pods.len()));
        let out = ListMetaOut { rv: meta.rv, continue_token: Some("t".into()), remaining: Some(3), ..ListMetaOut::default() };
        for shape in SHAPES {
            let expected = listed(&pods, list_meta(&rv_text, "t", Some(3)), shape);
            prop_assert_eq!(written_list(&objects, out.clone(), shape), expected);
        }
        let stream: Vec<u8> = pods.iter().flat_map(|pod| frame("MODIFIED", shaped(pod, Shape::Full))).collect();
        prop_assert_eq!(decode_watch(&stream, &sizes, 1 << 20), decode_watch(&stream, &[], 1 << 20));
        for (pod, object) in pods.iter().zip(&objects) {
            prop_assert_eq!(object.attributes.field(0), pod.spec.as_ref().unwrap().node_name.as_deref().unwrap());
            let mut gone = pod.clone();
            gone.metadata.as_mut().unwrap().resource_version = Some(rv_text.clone());
            for shape in SHAPES {
                let written = event_frame(&form(), EventType::Deleted, object, Some(ResourceVersion(rv)), shape);
                prop_assert_eq!(written.unwrap().into_bytes(), frame("DELETED", shaped(&gone, shape)));
            }
        }
    }

    /// No input makes a decoder panic, and the result does not depend on the chunks.
    #[test]
    fn damage_is_an_error_or_harmless(
        pods in proptest::collection::vec(any_pod(), 1..3),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        size in 1usize..50,
    ) {
        let mut list = listed(&pods, list_meta("5", "", None), Shape::Full);
        let mut stream: Vec<u8> = pods.iter().flat_map(|pod| frame("ADDED", shaped(pod, Shape::Full))).collect();
        for (at, byte) in damage {
            let place = at.index(list.len());
            list[place] = byte;
            let place = at.index(stream.len());
            stream[place] = byte;
        }
        let text = |list: Result<(Vec<Object>, crate::codec::json::ListMeta), CodecError>| format!("{list:?}");
        prop_assert_eq!(text(decode_list(&list, &[size], 1 << 16)), text(decode_list(&list, &[], 1 << 16)));
        prop_assert_eq!(decode_watch(&stream, &[size], 1 << 16), decode_watch(&stream, &[], 1 << 16));
    }

    #[test]
    fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 1..300)) {
        prop_assert!(decode_list(&bytes, &[], 1 << 16).is_err());
        prop_assert!(decode_list(&[b"k8s\0", &bytes[..]].concat(), &[], 1 << 16).is_err());
        let _ = decode_watch(&bytes, &[], 1 << 16);
        let _ = parse_item(&bytes, &table());
        let _ = read_status(&bytes);
        let _ = bookmark_frame(&form(), Some(&bytes.into()), ResourceVersion(1), true, Shape::Full);
    }
}

#[test]
fn partial_shapes_lack_what_is_no_annotation_inside() {
    let form = Form::new("apps/v1", "DaemonSet", "DaemonSetList");
    let annotated = |rv, names: &[&str]| {
        let mut pod = pod("p", rv);
        if let Some(metadata) = &mut pod.metadata {
            metadata.annotations = names.iter().map(|name| ((*name).to_owned(), "x".repeat(120))).collect();
        }
        pod
    };
    let name = "deprecated.daemonset.template.generation";
    let object = object(&annotated(7, &["a", name, "z"]));
    for shape in SHAPES.into_iter().skip(1) {
        let written = |rv| object_bytes(&form, &object, rv, shape).unwrap().into_bytes();
        assert_eq!(written(None), shaped(&annotated(7, &["a", "z"]), shape));
        assert_eq!(written(Some(ResourceVersion(123_456))), shaped(&annotated(123_456, &["a", "z"]), shape));
        assert_eq!(list_item(&form, &object, shape).unwrap().len() as u64, item_len(&form, &object, shape).unwrap());
    }
    let whole = object_bytes(&form, &object, None, Shape::Full).unwrap().into_bytes();
    assert!(whole.windows(name.len()).any(|window| window == name.as_bytes()));
}
