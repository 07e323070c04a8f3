//! What is wrong with streams and lists, and how it is named. The fuzz targets (`json_watch`, `json_list`) compare what is right with
//! serde_json, also as other servers write it, and show that nothing depends on how the bytes are split into chunks.

use bytes::Bytes;

use crate::{CodecError, ListDecoder, WatchDecoder};
use informerd_meta::{Encoding, FieldTable};

use super::*;

/// What is wrong with a stream whose frames may have 100 bytes.
fn wrong(frame: &str) -> CodecError {
    let mut decoder = WatchDecoder::new(Encoding::Json, 100, FieldTable::default());
    decoder.push(Bytes::copy_from_slice(frame.as_bytes()));
    let error = decoder.next().unwrap_err();
    assert_eq!(decoder.next().unwrap_err(), error);
    error
}

/// The end of a list whose items may have 200 bytes.
fn list(body: &str) -> Result<ListMeta, CodecError> {
    let mut decoder = ListDecoder::new(Encoding::Json, 200, FieldTable::default());
    decoder.push(Bytes::copy_from_slice(body.as_bytes()));
    while decoder.next()?.is_some() {}
    decoder.finish()
}

#[test]
fn wrong_frames() {
    assert_eq!(wrong("{\"type\":\"PATCHED\",\"object\":{}}\n"), CodecError::UnknownEventType("PATCHED".into()));
    assert_eq!(wrong("{\"type\":\"ADDED\"}\n"), CodecError::Missing("object"));
    assert_eq!(wrong("{\"object\":{}}\n"), CodecError::Missing("type"));
    assert!(matches!(wrong("<html>"), CodecError::Malformed { .. }));
    assert!(matches!(wrong("{\"type\":\"ERROR\",\"object\":[\"x\"]}\n"), CodecError::NotAStatus(_)));
    assert!(matches!(wrong("{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\"}}\n"), CodecError::Invalid(_)));
    // The limit applies to complete and incomplete frames, with or without a newline.
    let long = format!("{{\"type\":\"ADDED\",\"object\":{{\"x\":\"{}\"}}}}\n", "x".repeat(100));
    assert_eq!(wrong(&long), CodecError::TooLarge { limit: 100 });
    assert_eq!(wrong(&long[..long.len() - 1]), CodecError::TooLarge { limit: 100 });
    assert_eq!(wrong(&long[..110]), CodecError::TooLarge { limit: 100 });
}

#[test]
fn wrong_lists() {
    let end = list(r#"{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":null}"#).unwrap();
    assert_eq!(end.style, Style::Stripped);
    let end = |body: &str| list(body).unwrap_err();
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
    assert_eq!(end(&format!("{{\"items\":[{{\"x\":\"{}", "x".repeat(300))), CodecError::TooLarge { limit: 200 });
}
