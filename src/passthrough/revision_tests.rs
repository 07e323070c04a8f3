use proptest::prelude::*;

use super::*;

fn headers(media_type: &str, encoding: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, media_type.parse().unwrap());
    if !encoding.is_empty() {
        headers.insert(CONTENT_ENCODING, encoding.parse().unwrap());
    }
    headers
}

fn find(finder: &mut Finder, body: &[u8], chunk: usize) -> Vec<u64> {
    body.chunks(chunk).filter_map(|part| finder.push(&Bytes::copy_from_slice(part))).map(ResourceVersion::get).collect()
}

fn find_json(body: &str, chunk: usize) -> Vec<u64> {
    find(&mut Finder::new(&headers("application/json", ""), false), body.as_bytes(), chunk)
}

const CUSTOM_LIST: &str = r#"{"apiVersion":"g/v1","items":[{"apiVersion":"g/v1","kind":"W","metadata":{"name":"a","resourceVersion":"7"}}],"kind":"WList","metadata":{"continue":"","resourceVersion":"342"}}"#;

#[test]
fn what_is_no_json_or_no_revision() {
    for body in [
        "",
        r#"{"metadata":{"resource\u0056ersion":"12"}}"#,
        r#"{"metadata":{"resourceVersion":"99999999999999999999999999999999999999999999"}}"#,
        "}}}}]]]",
    ] {
        assert_eq!(find_json(body, 3), [0u64; 0], "{body}");
    }
}

#[test]
fn every_event_of_a_watch() {
    let body = concat!(
        r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","resourceVersion":"5"}}}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9","creationTimestamp":null}}}"#,
        "\n",
        r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}"#,
    );
    for chunk in [1, 7, 50] {
        let mut finder = Finder::new(&headers("application/json", ""), true);
        assert_eq!(find(&mut finder, body.as_bytes(), chunk), [5, 9]);
    }
    let mut finder = Finder::new(&headers("application/json;stream=watch", ""), true);
    assert_eq!(find(&mut finder, body.as_bytes(), body.len()), [9], "the newest of a part");
}

#[test]
fn inside_gzip() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(CUSTOM_LIST.as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    for chunk in [1, 10, body.len()] {
        let mut finder = Finder::new(&headers("application/json", "gzip"), false);
        assert_eq!(find(&mut finder, &body, chunk), [342]);
    }
    let mut finder = Finder::new(&headers("application/json", "gzip"), false);
    assert_eq!(find(&mut finder, b"this is no gzip stream at all", 5), [0u64; 0]);
    assert!(finder.is_blind());
}

#[test]
fn other_forms_are_not_read() {
    for (media_type, encoding) in [
        ("application/yaml", ""),
        ("text/plain", ""),
        ("application/json", "br"),
        ("application/vnd.kubernetes.protobuf", "gzip"),
    ] {
        assert!(Finder::new(&headers(media_type, encoding), false).is_blind(), "{media_type} {encoding}");
    }
    assert!(Finder::new(&HeaderMap::new(), false).is_blind());
    assert!(!Finder::new(&headers("application/vnd.kubernetes.protobuf", ""), false).is_blind());
}

proptest! {
    /// The finder agrees with a real parser, for any document and any chunking.
    #[test]
    fn agrees_with_a_parser(value in document(), chunk in 1usize..40, pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let expected = value
            .as_object()
            .and_then(|object| object.get("metadata")?.as_object()?.get("resourceVersion")?.as_str())
            .and_then(ResourceVersion::parse)
            .map(ResourceVersion::get);
        prop_assert_eq!(find_json(&text, chunk), expected.into_iter().collect::<Vec<_>>());
    }
}

/// Documents with many of the names that are looked for.
fn document() -> impl Strategy<Value = serde_json::Value> {
    let key =
        prop_oneof![Just("metadata".to_owned()), Just("resourceVersion".to_owned()), "[a-c\"\\\\{}\\[\\],:]{0,3}"];
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<u8>().prop_map(Into::into),
        (0u64..999).prop_map(|n| n.to_string().into()),
        "[a\"\\\\{}\\[\\],:é]{0,4}".prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}
