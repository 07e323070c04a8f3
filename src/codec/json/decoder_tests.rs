//! Decoders of streams and lists, as other servers write them, and of what is wrong. The fuzz targets (`json_watch`, `json_list`) show that
//! nothing depends on how the bytes are split into chunks.

use bytes::Bytes;

use crate::codec::{CodecError, INITIAL_EVENTS_END};
use crate::meta::FieldTable;

use super::*;

const STREAM: &str = include_str!("testdata/pod.watch.jsonl");

fn watch(chunks: &[&[u8]], max_frame: usize) -> (Vec<String>, Option<CodecError>, bool) {
    let mut decoder = WatchDecoder::new(max_frame, FieldTable::default());
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next().unwrap_err(), error);
                    return (frames, Some(error), false);
                }
            }
        }
    }
    (frames, None, decoder.has_partial())
}

fn list(chunks: &[&[u8]], max_item: usize) -> (Vec<String>, Result<ListMeta, CodecError>) {
    let mut decoder = ListDecoder::new(max_item, FieldTable::default());
    let mut items = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        loop {
            match decoder.next() {
                Ok(Some(item)) => items.push(format!("{item:?}")),
                Ok(None) => break,
                Err(error) => return (items, Err(error)),
            }
        }
    }
    (items, decoder.finish())
}

#[test]
fn frames_of_other_servers() {
    let meta = r#"{"metadata":{"name":"a","resourceVersion":"5"}}"#;
    // The `object` member comes first. There are extra spaces and members, and no newline.
    let stream = format!(
        "  {{\"object\":{meta},\"x\":[1],\"type\":\"ADDED\"}}{{ \"type\" :\n \"DELETED\", \"object\": {meta}\n}}\r\n\n"
    );
    let (frames, error, partial) = watch(&[stream.as_bytes()], 1024);
    assert_eq!((frames.len(), error, partial), (2, None, false));
    assert!(frames[1].contains("Deleted"));
}

#[test]
fn wrong_frames() {
    let one = |frame: &str| watch(&[frame.as_bytes()], 100).1.unwrap();
    assert_eq!(one("{\"type\":\"PATCHED\",\"object\":{}}\n"), CodecError::UnknownEventType("PATCHED".into()));
    assert_eq!(one("{\"type\":\"ADDED\"}\n"), CodecError::Missing("object"));
    assert_eq!(one("{\"object\":{}}\n"), CodecError::Missing("type"));
    assert!(matches!(one("<html>"), CodecError::Malformed { .. }));
    assert!(matches!(one("{\"type\":\"ERROR\",\"object\":[\"x\"]}\n"), CodecError::NotAStatus(_)));
    assert!(matches!(one("{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\"}}\n"), CodecError::Invalid(_)));
    // The limit applies to complete and incomplete frames, with or without a newline.
    let long = format!("{{\"type\":\"ADDED\",\"object\":{{\"x\":\"{}\"}}}}\n", "x".repeat(100));
    assert_eq!(one(&long), CodecError::TooLarge { limit: 100 });
    assert_eq!(one(&long[..long.len() - 1]), CodecError::TooLarge { limit: 100 });
    assert_eq!(one(&long[..110]), CodecError::TooLarge { limit: 100 });
}

#[test]
fn the_end_of_the_initial_events_may_be_written_with_escapes() {
    for (value, expected) in [(r#""true""#, true), (r#""\u0074rue""#, true), (r#""false""#, false), ("null", false)] {
        let frame = format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"5","annotations":{{"{INITIAL_EVENTS_END}":{value}}}}}}}}}"#
        );
        let (frames, error, _) = watch(&[frame.as_bytes()], 1024);
        assert_eq!((frames.len(), error), (1, None));
        assert!(frames[0].contains(&format!("initial_events_end: {expected}")), "{value}");
    }
}

#[test]
fn a_cut_frame_is_seen() {
    assert!(watch(&[&STREAM.as_bytes()[..STREAM.len() - 2]], 1 << 20).2);
    assert!(!watch(&[&STREAM.as_bytes()[..STREAM.len() - 1]], 1 << 20).2);
}

#[test]
fn lists_of_other_servers() {
    let meta = r#"{"metadata":{"name":"a","resourceVersion":"5"}}"#;
    let one = |body: &str| list(&[body.as_bytes()], 200);
    let (items, end) = one(&format!(
        "\n{{ \"metadata\" : {{ \"resourceVersion\" : \"7\", \"remainingItemCount\": 3, \"selfLink\": \"\" }},\n \"items\" : [ {meta} , {meta} ] , \"x\": 1, \"kind\":\"L\", \"apiVersion\":\"v1\" }} \n"
    ));
    assert_eq!(items.len(), 2);
    let end = end.unwrap();
    assert_eq!(
        (end.rv.get(), end.remaining_item_count, &*end.list_kind, end.style),
        (7, Some(3), "L", Style::Stripped)
    );
    let (items, end) = one(r#"{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":null}"#);
    assert_eq!((items.len(), end.unwrap().style), (0, Style::Stripped));

    let end = |body: &str| one(body).1.unwrap_err();
    assert_eq!(end(""), CodecError::Truncated);
    assert_eq!(end("{\"kind\":\"L\",\"items\":[]"), CodecError::Truncated);
    assert_eq!(
        end("{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"code\":500}"),
        CodecError::Missing("items")
    );
    assert_eq!(
        end("{\"kind\":\"L\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[]}"),
        CodecError::Missing("metadata.resourceVersion")
    );
    assert_eq!(end("{\"items\":[],\"items\":[]}"), CodecError::Duplicate("items"));
    for body in [
        "[]",
        "{\"items\":[1]}",
        "{\"items\":1}",
        "{\"items\":[],}",
        "{\"items\":[]}x",
        "{\"items\" []}",
        "{,}",
        "{\"items\":[,]}",
    ] {
        assert!(one(body).1.is_err(), "{body}");
    }
    assert!(one(&format!("{{\"items\":[{meta},]}}")).1.is_err());
    assert_eq!(end(&format!("{{\"items\":[{{\"x\":\"{}", "x".repeat(300))), CodecError::TooLarge { limit: 200 });
}
