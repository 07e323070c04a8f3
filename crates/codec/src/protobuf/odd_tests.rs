//! Strings that are not UTF-8, and what cannot be decoded.

use bytes::Bytes;

use super::wire::{put_bytes, put_number};
use super::*;
use crate::{CodecError, ListDecoder, WatchDecoder};
use informerd_meta::{Encoding, FieldLabel, FieldTable, FieldValue};

/// One field at these numbers.
fn table(numbers: &[u32]) -> FieldTable {
    let value = FieldValue { numbers: numbers.into(), ..FieldValue::default() };
    FieldTable { labels: [FieldLabel { label: "x".into(), value }].into(), trigger: None }
}

pub(super) fn of(parts: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    parts.iter().for_each(|(number, bytes)| put_bytes(&mut out, *number, bytes));
    out
}

/// In an envelope.
pub(super) fn wrapped(kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = of(&[(1, b"v1"), (2, kind.as_bytes())]);
    [b"k8s\0", &of(&[(1, &type_meta), (2, message), (3, b""), (4, b"")])[..]].concat()
}

fn object(metadata: &[(u8, &[u8])], rest: &[(u8, &[u8])]) -> Vec<u8> {
    [of(&[(1, &of(metadata))]), of(rest)].concat()
}

#[test]
fn any_bytes_are_kept_and_shown_as_go_shows_them() {
    let annotation = of(&[(1, b"note"), (2, b"\xff")]);
    let metadata: &[(u8, &[u8])] =
        &[(1, b"p"), (3, b"n"), (5, b"u\xc3"), (6, b"5"), (11, &of(&[(1, b"l"), (2, b"\xff")])), (12, &annotation)];
    let message = object(metadata, &[(2, &of(&[(10, b"a\xe2\x82b")]))]);
    let parsed = parse_item(&message, &table(&[2, 10])).unwrap();
    assert_eq!((parsed.key.as_str(), parsed.attributes.uid()), ("n/p", "u\u{fffd}"));
    assert_eq!(parsed.attributes.field(0), "a\u{fffd}\u{fffd}b");
    assert_eq!(parsed.attributes.label("l"), Some("\u{fffd}"));
    assert_eq!(parsed.raw().unwrap().item(), message);
    let form = Form::new("v1", "Pod", "PodList");
    let body = object_bytes(&form, &parsed, None, crate::Shape::Full).unwrap().into_bytes();
    let without = Without { managed_fields: false, annotations: &["note"] };
    let rest = without.apply(&body).unwrap();
    assert!(!rest.windows(annotation.len()).any(|window| window == annotation));
    let kept = Without { managed_fields: false, annotations: &["other"] };
    assert_eq!(kept.apply(&body).unwrap(), body);
}

#[test]
fn there_may_be_any_number_of_labels() {
    let labels: Vec<_> = (0..66_000).map(|n| of(&[(1, format!("l{n}").as_bytes()), (2, b"")])).collect();
    let mut metadata: Vec<(u8, &[u8])> = vec![(1, b"p"), (6, b"5")];
    metadata.extend(labels.iter().map(|label| (11, &label[..])));
    let parsed = parse_item(&object(&metadata, &[]), &FieldTable::default()).unwrap();
    assert_eq!(parsed.attributes.labels().count(), 66_000);
}

#[test]
fn a_name_that_is_not_utf8_is_refused_and_named() {
    for name in [&b"p\xff"[..], "p\u{fffd}".as_bytes()] {
        let message = object(&[(1, name), (3, b"n"), (6, b"5")], &[]);
        assert_eq!(parse_item(&message, &FieldTable::default()).unwrap_err(), CodecError::Invalid("metadata.name"));
        let named = Some("n/p\u{fffd}".to_owned());

        let event = of(&[(1, b"ADDED"), (2, &of(&[(1, &wrapped("Pod", &message))]))]);
        let mut decoder = WatchDecoder::new(Encoding::Protobuf, 1 << 20, FieldTable::default());
        decoder.push(Bytes::from([&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()));
        assert_eq!(decoder.odd_object(), None);
        assert!(decoder.next().is_err() && decoder.odd_object() == named);

        let list = wrapped("Pod", &of(&[(1, &of(&[(2, b"9")])), (2, &message)]));
        let mut decoder = ListDecoder::new(Encoding::Protobuf, 1 << 20, FieldTable::default());
        decoder.push(list.clone().into());
        assert!(decoder.next().is_err() && decoder.odd_object() == named);
        let mut decoder = ListDecoder::new(Encoding::Protobuf, message.len() - 1, FieldTable::default());
        decoder.push(list.into());
        let limit = message.len() - 1;
        assert_eq!(decoder.next().unwrap_err(), CodecError::TooLarge { limit });
        assert_eq!(decoder.odd_object(), named);
    }
}

#[test]
fn a_status_may_quote_any_bytes() {
    let status = of(&[(3, b"no \xff"), (5, &of(&[(1, b"\xff"), (4, &of(&[(2, b"\xff")]))]))]);
    let status = read_status(&wrapped("Status", &status)).unwrap();
    assert_eq!(status.message, "no \u{fffd}");
}

/// The latest time that RFC 3339 can express, and times that are not set.
#[test]
fn every_time_of_metadata_is_kept() {
    let metadata = |time: &str| {
        let json = format!(
            r#"{{"apiVersion":"x/v1","kind":"X","metadata":{{"creationTimestamp":{time},"name":"n","resourceVersion":"1"}}}}"#
        );
        let object = crate::json::parse_item(json.as_bytes(), &FieldTable::default()).unwrap().0;
        let form = Form::of_json("x/v1", "X", "XList");
        list_item(&form, &object, crate::Shape::PartialObjectMetadata).unwrap().into_bytes()
    };
    for (text, seconds) in [
        ("\"9999-12-31T23:59:59Z\"", Some(253_402_300_799)),
        ("\"9999-12-31T23:59:59-23:00\"", Some(253_402_383_599)),
        ("\"0000-01-01T00:00:00Z\"", Some(-62_167_219_200)),
        ("\"0001-01-01T00:00:00Z\"", None),
        ("null", None),
    ] {
        let mut time = Vec::new();
        if let Some(seconds) = seconds {
            put_number(&mut time, 1, seconds);
            put_number(&mut time, 2, 0);
        }
        let time = of(&[(8, &time)]);
        assert!(metadata(text).windows(time.len()).any(|window| window == time), "{text}");
    }
}
