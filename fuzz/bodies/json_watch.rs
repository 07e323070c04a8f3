//! A watch stream in JSON that arrives in chunks, against the same stream as serde_json reads it.
//!
//! What may be refused, and why, is listed in `faults`. The object of a BOOKMARK is read more leniently: it is never served as it
//! came.

use informerd::codec::json::{Form, Style, WatchFrame, event_frame};
use informerd::codec::{CodecError, INITIAL_EVENTS_END, Shape};
use informerd::meta::{Encoding, EventType, Status};
use serde_json::value::RawValue;

use super::faults::{Faults, Why, agreed, malformed};
use super::input::{Input, repeated, watched};
use super::json::{Json, is_beyond, raw_member};
use super::json_item::Expected;
use super::messages::{decimal, text};
use super::pods::bytes;

pub fn check(data: &[u8]) {
    let data = repeated(data);
    let Some(input) = Input::of(&data) else { return };
    let (frames, end) = input.decoded(|chunks, limit| watched(Encoding::Json, chunks, limit));
    if is_beyond(&end, input.bytes) {
        return;
    }
    let mut frames = frames.into_iter();
    let read = text(input.bytes);
    let mut values = serde_json::Deserializer::from_str(&read).into_iter::<&RawValue>();
    loop {
        match values.next() {
            None => {
                assert!(frames.next().is_none(), "a frame more");
                assert_eq!(end, Ok(false), "nothing is left");
                return;
            }
            Some(Err(_)) => {
                assert!(frames.next().is_none(), "a frame of what is no JSON");
                assert_ne!(end, Ok(false), "something is left");
                return;
            }
            Some(Ok(raw)) => {
                let Some(json) = Json::read(raw.get().as_bytes()) else { return };
                let ours = frames.next().ok_or_else(|| end.clone().expect_err("no frame, and no error"));
                let Some((ours, expected)) = agreed(ours, frame(&json, raw)) else { return };
                expected.compare(&ours);
            }
        }
    }
}

#[derive(Debug)]
enum Frame<'a> {
    Event(EventType, Expected<'a>, &'a Json),
    Bookmark { rv: u64, is_end: bool, object: &'a Json },
    Error(Status),
}

fn frame<'a>(json: &'a Json, raw: &RawValue) -> Result<Frame<'a>, Faults> {
    if json.members().is_none() {
        return Err(Faults::of(malformed("expected a watch event"), Why::of(json)));
    }
    let mut faults = Faults::default();
    faults.texts(json, "type");
    faults.needed(json, "type");
    let object = faults.needed(json, "object");
    let mut read = None;
    for kind in json.named("type").filter_map(Json::text) {
        let kinds = [EventType::Added, EventType::Modified, EventType::Deleted];
        let event = kinds.into_iter().find(|event| event.as_str() == kind);
        let frame = match (kind, event, object) {
            (_, Some(event), Some(object)) => Expected::of(object).map(|item| Frame::Event(event, item, object)),
            ("BOOKMARK", _, Some(object)) => bookmark(object),
            ("ERROR", _, Some(_)) => error(raw),
            ("BOOKMARK" | "ERROR", ..) | (_, Some(_), None) => continue,
            (_, None, _) => Err(Faults::of(CodecError::UnknownEventType(kind.chars().take(64).collect()), Why::Type)),
        };
        match frame {
            Ok(frame) => read = Some(frame),
            Err(more) => faults.append(more),
        }
    }
    match read {
        Some(frame) => faults.or(frame),
        None => Err(faults),
    }
}

fn error<'a>(raw: &RawValue) -> Result<Frame<'a>, Faults> {
    let status = raw_member(raw.get(), "object").and_then(|object| serde_json::from_str(object.get()).ok());
    status.map(Frame::Error).ok_or_else(|| Faults::of(CodecError::NotAStatus(String::new()), Why::Type))
}

/// Metadata that occurs twice is merged, as Go does it.
fn bookmark(object: &Json) -> Result<Frame<'_>, Faults> {
    let mut faults = Faults::default();
    if !faults.is_object(object) {
        return Err(faults);
    }
    let is_text_or_null = |value: &Json| matches!(value, Json::Null | Json::Text(..));
    for label in ["kind", "apiVersion"] {
        if !object.named(label).all(is_text_or_null) {
            faults.push(CodecError::Invalid(label), Why::Type);
        }
    }
    let (mut rv, mut is_end) = (None, false);
    let metadata = object.named("metadata").filter(|metadata| faults.is_object(metadata)).collect::<Vec<_>>();
    for (name, value) in metadata.into_iter().filter_map(Json::members).flatten() {
        match name.as_str() {
            "resourceVersion" if is_text_or_null(value) => {
                rv = value.text().and_then(|digits| decimal(digits.as_bytes()));
            }
            "resourceVersion" => faults.push(CodecError::Invalid("metadata.resourceVersion"), Why::Type),
            "annotations" => {
                for value in value.named(INITIAL_EVENTS_END) {
                    if !is_text_or_null(value) {
                        faults.push(CodecError::Invalid("metadata.annotations"), Why::Type);
                    }
                    is_end = value.text() == Some("true");
                }
            }
            _ => {}
        }
    }
    if rv.is_none() {
        faults.push(CodecError::Invalid("metadata.resourceVersion of a bookmark"), Why::Revision);
    }
    faults.or(Frame::Bookmark { rv: rv.unwrap_or_default(), is_end, object })
}

impl Frame<'_> {
    fn compare(&self, frame: &WatchFrame) {
        match (self, frame) {
            (Self::Event(expected, item, json), WatchFrame::Event { kind, object, type_meta }) => {
                assert_eq!(kind, expected);
                item.compare(object, type_meta);
                if type_meta.style == Style::Stripped && type_meta.kind.is_empty() {
                    return;
                }
                // What is sent to the clients is what came.
                let form = Form::new(type_meta.style, &type_meta.api_version, &type_meta.kind, "List");
                let written = bytes(event_frame(&form, *kind, object, None, Shape::Full));
                let written = Json::read(&written).expect("a frame is JSON");
                let object = written.get("object").expect("an object");
                assert_eq!(object.with_plain_type(), json.with_plain_type());
                assert_eq!(written.get("type").and_then(Json::text), Some(kind.as_str()));
            }
            (
                Self::Bookmark { rv, is_end, object },
                WatchFrame::Bookmark { rv: read, initial_events_end, object: kept, .. },
            ) => {
                assert_eq!((read.get(), initial_events_end), (*rv, is_end));
                // What is deep is text, and it is less deep alone than in its frame.
                let kept = Json::read(kept).expect("what is kept is JSON");
                assert!(kept == **object || !object.is_whole(), "{kept:?} is not {object:?}");
            }
            (Self::Error(expected), WatchFrame::Error(status)) => assert_eq!(status, expected),
            (expected, frame) => panic!("{frame:?}, but {expected:?}"),
        }
    }
}
