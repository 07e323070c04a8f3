//! The values that the item parser takes, and what it refuses. The fuzz target `json_item` compares all else with serde_json.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::codec::{CodecError, Shape};
use crate::meta::{EventType, FieldLabel, FieldTable, FieldValue, ResourceVersion};

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
    (0..table.len()).map(|index| object.attributes.field(index).to_owned()).collect()
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

#[test]
fn type_meta_anywhere_but_in_front_stays() {
    for object in [
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"1"}}"#,
        r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"1"},"apiVersion":"v1"}"#,
        r#"{"metadata":{"name":"a","resourceVersion":"1"},"kind":"Pod"}"#,
        r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"1"}}"#,
    ] {
        let (parsed, type_meta) = parse_item(object.as_bytes(), &FieldTable::default()).unwrap();
        assert_eq!(type_meta.style, Style::Inline);
        assert_eq!(parsed.raw().unwrap().item(), object);
        // A form built from stripped objects does not add a second kind to it.
        if object.starts_with("{\"apiVersion\"") {
            let body = object_body(&Form::new(Style::Stripped, "v1", "Pod", "PodList"), &parsed, Shape::Full);
            assert_eq!(body.unwrap().into_bytes(), format!("{object}\n"));
        }
    }
}

#[test]
fn names_what_is_wrong() {
    let meta = |members: &str| format!("{{\"metadata\":{{{members}}}}}");
    assert_eq!(error(b""), CodecError::Truncated);
    assert_eq!(error(b"{\"metadata\":{\"name\":\"a\","), CodecError::Truncated);
    assert_eq!(error(b"{}"), CodecError::Missing("metadata"));
    assert_eq!(error(meta("").as_bytes()), CodecError::Missing("metadata.name"));
    assert_eq!(error(meta("\"name\":\"a\"").as_bytes()), CodecError::Missing("metadata.resourceVersion"));
    for rv in ["", "a", "+1", "-1", "1\\u0030", "99999999999999999999"] {
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

/// Generates any JSON value, including members and strings that the parser looks for.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i16>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z.-]{0,12}", ".{0,20}", "[\"\\\\\u{0}-\u{20}\u{7f}é😀]{0,12}"]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec!["a", "b", "metadata", "name", "resourceVersion", "labels", "kind"]).prop_map(str::to_owned),
        1 => text(),
    ]
}

/// Generates an object, its labels and its other members.
fn object() -> impl Strategy<Value = (Value, Vec<(String, String)>)> {
    let labels = prop::collection::btree_map(text(), text(), 0..6);
    let spec = prop::collection::vec((key(), value()), 0..5);
    ("[a-z]{1,8}", "[a-z]{0,8}", any::<u64>(), labels, spec, value()).prop_map(
        |(name, namespace, rv, labels, spec, odd)| {
            let mut metadata = json!({"name": name, "resourceVersion": rv.to_string(), "annotations": odd, "uid": "u"});
            if !namespace.is_empty() {
                metadata["namespace"] = namespace.into();
            }
            if !labels.is_empty() {
                metadata["labels"] =
                    labels.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect::<Map<_, _>>().into();
            }
            let mut object: Map<String, Value> = spec.into_iter().collect();
            object.remove("kind");
            object.insert("metadata".into(), metadata);
            (object.into(), labels.into_iter().collect())
        },
    )
}

proptest! {
    #[test]
    fn finds_the_values_that_serde_finds(
        (object, _) in object(),
        paths in prop::collection::vec(prop::collection::vec(prop_oneof![key(), "[0-3]"], 1..4), 0..8),
    ) {
        let labels = paths.iter().map(|path| FieldLabel {
            label: "x".into(),
            value: FieldValue { path: path.iter().map(|s| Arc::from(s.as_str())).collect(), missing: "?", ..Default::default() },
        });
        let table = table(labels.collect());
        let body = object.to_string();
        let (parsed, _) = parse_item(body.as_bytes(), &table).unwrap();
        for (index, path) in paths.iter().enumerate() {
            let at = path.iter().try_fold(&object, |value, segment| match value {
                Value::Array(elements) => elements.get(segment.parse::<usize>().ok()?),
                value => value.get(segment),
            });
            let expected = match at {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(bool)) => bool.to_string(),
                Some(Value::Number(number)) if number.is_i64() => number.to_string(),
                Some(Value::Number(number)) => {
                    prop_assert_eq!(parsed.attributes.field(index).parse::<f64>().unwrap(), number.as_f64().unwrap());
                    continue;
                }
                _ => "?".into(),
            };
            prop_assert_eq!(parsed.attributes.field(index), expected, "{:?}", path);
        }
    }
}

#[test]
fn partial_shapes_lack_what_is_no_annotation_inside() {
    let forms = [
        ("apps/v1", "{\"a\":\"1\",\"z\":\"2\"}"),
        ("apps/v1beta1", "{\"a\":\"1\",\"deprecated.daemonset.template.generation\":\"3\",\"z\":\"2\"}"),
    ];
    let item = br#"{"metadata":{"name":"d","resourceVersion":"7","annotations":{"a":"1","deprecated.daemonset.template.generation":"3","z":"2"},"managedFields":[]},"spec":{}}"#;
    let (object, _) = parse_item(item, &FieldTable::default()).unwrap();
    for (api_version, annotations) in forms {
        let form = Form::new(Style::Stripped, api_version, "DaemonSet", "DaemonSetList");
        let partial = |rv: u64| {
            format!(
                r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"name":"d","resourceVersion":"{rv}","annotations":{annotations},"managedFields":[]}}}}"#
            )
        };
        let written = |rv| object_bytes(&form, &object, rv, Shape::PartialObjectMetadata).unwrap().into_bytes();
        assert_eq!(written(None), partial(7));
        assert_eq!(written(Some(ResourceVersion(1234))), partial(1234));
        assert_eq!(
            event_frame(&form, EventType::Deleted, &object, Some(ResourceVersion(12)), Shape::PartialObjectMetadata)
                .unwrap()
                .into_bytes(),
            format!("{{\"type\":\"DELETED\",\"object\":{}}}\n", partial(12))
        );
        let whole = object_bytes(&form, &object, None, Shape::Full).unwrap().into_bytes();
        assert!(std::str::from_utf8(&whole).unwrap().contains("template.generation"));
    }
    let template = Bytes::from_static(
        br#"{"kind":"DaemonSet","apiVersion":"apps/v1","metadata":{"resourceVersion":"1","annotations":{"deprecated.daemonset.template.generation":"0"}},"spec":{}}"#,
    );
    let form = Form::new(Style::Stripped, "apps/v1", "DaemonSet", "DaemonSetList");
    assert_eq!(
        bookmark_frame(&form, Some(&template), ResourceVersion(9), false, Shape::PartialObjectMetadata),
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{\"resourceVersion\":\"9\"}}}\n"
    );
}
