//! Messages, lists and streams in protobuf, written field by field.

use prost::encoding::encode_varint;

use super::choices::Choices;

const TEXTS: &[&[u8]] = &[b"a", b"", b"a/b", b"\xff", "é".as_bytes(), b"Running"];
const REVISIONS: &[&[u8]] = &[b"5", b"18446744073709551615", b"007", b"x", b""];

fn put(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    encode_varint(number << 3 | 2, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, number: u64, value: u64) {
    encode_varint(number << 3, out);
    encode_varint(value, out);
}

/// A field that nobody knows, or that is of another type than it should be.
fn put_strange(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let number = choices.of(&[1, 2, 5, 6, 11, 12, 17, 99, 4000]);
    match choices.below(5) {
        0 => put_number(out, number, u64::MAX),
        1 => {
            encode_varint(number << 3 | 1, out);
            out.extend_from_slice(b"12345678");
        }
        2 => {
            encode_varint(number << 3 | 5, out);
            out.extend_from_slice(b"1234");
        }
        3 => {
            encode_varint(number << 3 | 3, out);
            encode_varint(number << 3 | 4, out);
        }
        _ => put(out, number, choices.of(TEXTS)),
    }
}

fn metadata(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, b"p");
    for _ in 0..choices.below(6) {
        match choices.below(7) {
            0 => put(&mut out, 3, choices.of(TEXTS)),
            1 => put(&mut out, 5, choices.of(TEXTS)),
            2 | 3 => {
                let mut entry = Vec::new();
                put(&mut entry, 1, choices.of(&[b"a", b"b", b"a"]));
                put(&mut entry, 2, choices.of(TEXTS));
                put(&mut out, choices.of(&[11, 12]), &entry);
            }
            4 => {
                let mut entry = Vec::new();
                put(&mut entry, 1, b"k8s.io/initial-events-end");
                put(&mut entry, 2, choices.of(&[b"true", b"fals"]));
                put(&mut out, 12, &entry);
            }
            5 => {
                let mut owner = Vec::new();
                put(&mut owner, 4, choices.of(TEXTS));
                put(&mut out, 13, &owner);
                put(&mut out, 17, choices.of(TEXTS));
            }
            _ => put_strange(choices, &mut out),
        }
    }
    put(&mut out, 6, if choices.one_in(4) { choices.of(REVISIONS) } else { b"5" });
    out
}

pub(super) fn item(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, 1, &metadata(choices));
    for _ in 0..choices.below(3) {
        let mut spec = Vec::new();
        put(&mut spec, choices.of(&[10, 8, 1]), choices.of(TEXTS));
        put_number(&mut spec, choices.of(&[11, 7]), u64::from(choices.next()));
        put(&mut out, choices.of(&[2, 3]), &spec);
        if choices.one_in(4) {
            put_strange(choices, &mut out);
        }
    }
    out
}

fn envelope(choices: &mut Choices<'_>, kind: &[u8], message: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put(&mut type_meta, 1, b"v1");
    put(&mut type_meta, 2, kind);
    let mut out = b"k8s\0".to_vec();
    put(&mut out, 1, &type_meta);
    put(&mut out, 2, message);
    for number in [3, 4] {
        if !choices.one_in(4) {
            put(&mut out, number, b"");
        }
    }
    if choices.one_in(12) {
        put_strange(choices, &mut out);
    }
    out
}

pub(super) fn list(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut meta = Vec::new();
    put(&mut meta, 2, if choices.one_in(6) { choices.of(REVISIONS) } else { b"9" });
    put(&mut meta, 3, choices.of(TEXTS));
    if choices.one_in(2) {
        put_number(&mut meta, 4, choices.of(&[3, u64::MAX]));
    }
    let mut message = Vec::new();
    if !choices.one_in(8) {
        put(&mut message, 1, &meta);
    }
    for item in choices.some(4, item) {
        put(&mut message, 2, &item);
    }
    if choices.one_in(10) {
        put_strange(choices, &mut message);
    }
    envelope(choices, b"PodList", &message)
}

fn status(choices: &mut Choices<'_>) -> Vec<u8> {
    let (mut out, mut details, mut cause) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..4 {
        put(&mut cause, number, choices.of(TEXTS));
        put(&mut details, number, choices.of(TEXTS));
        put(&mut out, number + 1, choices.of(TEXTS));
    }
    put(&mut details, 4, &cause);
    put_number(&mut details, 5, choices.of(&[1, u64::MAX]));
    put(&mut out, 5, &details);
    put_number(&mut out, 6, choices.of(&[410, 70_000, u64::MAX]));
    out
}

pub(super) fn stream(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..choices.below(4) {
        let kind = choices.of(&[&b"ADDED"[..], b"MODIFIED", b"DELETED", b"BOOKMARK", b"ERROR", b"PATCHED"]);
        let object = if kind == b"ERROR" {
            let message = status(choices);
            envelope(choices, b"Status", &message)
        } else {
            let message = item(choices);
            envelope(choices, b"Pod", &message)
        };
        let (mut extension, mut event) = (Vec::new(), Vec::new());
        put(&mut extension, 1, &object);
        put(&mut event, 1, kind);
        put(&mut event, 2, &extension);
        if choices.one_in(10) {
            put_strange(choices, &mut event);
        }
        out.extend_from_slice(&(event.len() as u32).to_be_bytes());
        out.extend_from_slice(&event);
    }
    out
}
