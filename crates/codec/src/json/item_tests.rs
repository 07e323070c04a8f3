//! The values that the item parser takes, and what it refuses. The fuzz target `json_item` compares all else with
//! serde_json, also the values of the fields of pods.

use std::sync::Arc;

use crate::{CodecError, Shape};
use informerd_meta::{FieldLabel, FieldTable, FieldValue};

use super::*;

fn field(path: &str, fallback: Option<&str>, missing: &'static str) -> FieldLabel {
    let split = |path: &str| path.split('.').map(Arc::from).collect::<Vec<Arc<str>>>().into();
    FieldLabel {
        label: path.into(),
        value: FieldValue { path: split(path), fallback: fallback.map(split), missing, ..Default::default() },
    }
}

fn table(labels: Vec<FieldLabel>) -> FieldTable {
    FieldTable { labels: labels.into(), trigger: None }
}

fn fields(object: &str, table: &FieldTable) -> Vec<String> {
    let (object, _) = parse_item(object.as_bytes(), table).unwrap();
    (0..table.labels.len()).map(|index| object.attributes.field(index).to_owned()).collect()
}

fn error(object: &[u8]) -> CodecError {
    parse_item(object, &FieldTable::default()).unwrap_err()
}

#[test]
fn takes_the_values_of_the_field_table() {
    let table = table(vec![
        field("spec.nodeName", None, ""),
        field("spec.hostNetwork", None, "false"),
        field("status.replicas", None, "0"),
        field("status.podIPs.0.ip", None, ""),
        field("source.component", Some("reportingComponent"), ""),
        field("spec.num", None, ""),
        field("metadata.annotations.a", None, "none"),
        field("kind", None, ""),
        field("spec.deep", None, "no scalar"),
    ]);
    let object = r#"{"kind":"P\u006fd","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1","annotations":{"a":"b"}},
        "spec":{"nodeName":"n\u003c1","hostNetwork":true,"num":1.5e6,"deep":{"nodeName":"x"}},
        "status":{"replicas":null,"podIPs":[{"ip":"10.0.0.1"},{"ip":"::1"}]},"source":{"component":""},"reportingComponent":"kubelet"}"#;
    assert_eq!(fields(object, &table), ["n<1", "true", "0", "10.0.0.1", "kubelet", "1.5e+06", "b", "Pod", "no scalar"]);
    let without = r#"{"metadata":{"name":"a","resourceVersion":"1"},"status":{"podIPs":[]},"spec":[]}"#;
    assert_eq!(fields(without, &table), ["", "false", "0", "", "", "", "none", "", "no scalar"]);
    // If a member occurs twice, the last one counts, and its whole value replaces the first.
    let twice =
        r#"{"metadata":{"name":"a","resourceVersion":"1"},"spec":{"nodeName":"x"},"spec":{"hostNetwork":true}}"#;
    assert_eq!(fields(twice, &table)[..2], ["", "true"]);
}

#[test]
fn keeps_objects_compact_and_without_type_meta() {
    let (object, type_meta) =
        parse_item(b" {\n \"kind\": \"Pod\", \"apiVersion\":\"v1\",\n\t\"metadata\": {\"name\": \"a \\\" b\", \"resourceVersion\": \"12\"}, \"x\" : [ 1 , \" \" ] } ", &FieldTable::default()).unwrap();
    assert_eq!(
        object.raw().unwrap().framed(),
        &br#"{"metadata":{"name":"a \" b","resourceVersion":"12"},"x":[1," "]},"#[..]
    );
    assert_eq!(object.raw().unwrap().slice(object.raw().unwrap().rv_range()), &b"12"[..]);
    assert_eq!((type_meta.style, &*type_meta.kind, &*type_meta.api_version), (Style::Stripped, "Pod", "v1"));
}

/// The fuzz target `json_item` shows that type meta anywhere else stays where it is.
#[test]
fn a_form_of_stripped_objects_adds_no_second_kind() {
    let object = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"1"}}"#;
    let (parsed, _) = parse_item(object.as_bytes(), &FieldTable::default()).unwrap();
    let body = object_bytes(&Form::new(Style::Stripped, "v1", "Pod", "PodList"), &parsed, None, Shape::Full);
    assert_eq!(body.unwrap().into_bytes(), object);
}

#[test]
fn names_what_is_wrong() {
    let meta = |members: &str| format!("{{\"metadata\":{{{members}}}}}");
    assert_eq!(error(b""), CodecError::Truncated);
    assert_eq!(error(b"{\"metadata\":{\"name\":\"a\","), CodecError::Truncated);
    assert_eq!(error(b"{}"), CodecError::Missing("metadata"));
    assert_eq!(error(meta("").as_bytes()), CodecError::Missing("metadata.name"));
    assert_eq!(error(meta("\"name\":\"a\"").as_bytes()), CodecError::Missing("metadata.resourceVersion"));
    for rv in ["", "a", "+1", "-1", "1a", " 1", "1\\u0030", "18446744073709551616"] {
        let object = meta(&format!("\"name\":\"a\",\"resourceVersion\":\"{rv}\""));
        assert_eq!(error(object.as_bytes()), CodecError::Invalid("metadata.resourceVersion"), "{rv}");
    }
    assert_eq!(
        error(meta("\"name\":\"a/b\",\"resourceVersion\":\"1\"").as_bytes()),
        CodecError::Invalid("metadata.name")
    );
    assert_eq!(error(meta("\"name\":1").as_bytes()), CodecError::Invalid("metadata.name"));
    assert_eq!(error(meta("\"labels\":{\"a\":null}").as_bytes()), CodecError::Invalid("metadata.labels"));
    assert_eq!(error(meta("\"name\":\"a\",\"name\":\"b\"").as_bytes()), CodecError::Duplicate("metadata.name"));
    let good = meta("\"name\":\"a\",\"resourceVersion\":\"1\"");
    assert!(matches!(error(format!("{good}{good}").as_bytes()), CodecError::Malformed { .. }));
    // In JSON it may stand for any byte, so two objects could have the same name.
    for odd in ["\u{fffd}", "\\ufffd", "\\ud800"] {
        let odd = good.replace("\"a\"", &format!("\"{odd}\""));
        assert_eq!(error(odd.as_bytes()), CodecError::Invalid("metadata.name"), "{odd}");
    }
    let deep = format!("{{\"x\":{}", "[".repeat(20_000));
    assert_eq!(error(deep.as_bytes()), CodecError::TooDeep { limit: 10_000 });
    let as_deep_as_allowed = format!("{{\"x\":{}{},{}", "[".repeat(10_000), "]".repeat(10_000), &good[1..]);
    assert!(parse_item(as_deep_as_allowed.as_bytes(), &FieldTable::default()).is_ok());
}

#[test]
fn takes_what_go_takes() {
    let labels = (0..66_000).map(|n| format!("\"l{n:05}\":\"\"")).collect::<Vec<_>>().join(",");
    let object = format!("{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"1\",\"labels\":{{{labels}}}}}}}");
    let (parsed, _) = parse_item(object.as_bytes(), &FieldTable::default()).unwrap();
    assert_eq!(parsed.attributes.labels().count(), 66_000);
    assert_eq!(parsed.attributes.label("l65999"), Some(""));

    // JSON that an object contains is sent as it is.
    let odd = b"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\"},\"data\":{\"\xff\":\"\",\"a\":\"x\xe2\x82\"}}";
    let (parsed, _) = parse_item(odd, &table(vec![field("data.a", None, "")])).unwrap();
    assert_eq!(parsed.raw().unwrap().item(), &odd[..]);
    assert_eq!(parsed.attributes.field(0), "x\u{fffd}\u{fffd}");
}
