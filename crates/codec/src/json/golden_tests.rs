//! What is written shares its bytes with what was read, and bookmarks that no apiserver of today sends. `tests/waiting/vectors.rs` writes all
//! that a kube-apiserver sends of its types, and the differential tests what it sends of custom resources.

use bytes::Bytes;

use crate::{Shape, Slices};
use informerd_meta::{EventType, FieldTable, ResourceVersion};

use super::*;

fn pods() -> Form {
    Form::new(Style::Stripped, "v1", "Pod", "PodList")
}

fn crontabs() -> Form {
    Form::new(Style::Inline, "stable.example.com/v1", "CronTab", "CronTabList")
}

#[test]
fn items_share_their_bytes_with_every_answer() {
    let (pod, _) = parse_item(include_bytes!("testdata/pod.json"), &FieldTable::default()).unwrap();
    let item = pod.raw().unwrap().item();
    let shares = |slices: Slices| slices.iter().any(|part| item.as_ptr_range().contains(&part.as_ptr()));
    assert!(shares(object_bytes(&pods(), &pod, None, Shape::Full).unwrap()));
    assert!(shares(event_frame(&pods(), EventType::Added, &pod, None, Shape::Full).unwrap()));
    assert!(shares(event_frame(&pods(), EventType::Deleted, &pod, Some(ResourceVersion(9)), Shape::Full).unwrap()));
    assert!(shares(list_item(&pods(), &pod, Shape::PartialObjectMetadata, false).unwrap()));
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
