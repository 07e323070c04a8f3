//! A watch stream in JSON that arrives in chunks, against the same stream as serde_json reads it.
//!
//! Deliberate differences from Go's decoder are those of one object (see `json_item`), and that a frame has one type and
//! one object. The object of a BOOKMARK is read more leniently: it is never served as it came.

use informerd::codec::json::{Form, Style, WatchDecoder, WatchFrame, event_frame};
use informerd::codec::{CodecError, INITIAL_EVENTS_END, Shape};
use informerd::meta::{EventType, Status};
use serde_json::value::RawValue;

use super::input::{Input, all};
use super::json::{Json, is_beyond};
use super::json_item::Expected;
use super::messages::text;
use super::pods::table;

pub fn check(data: &[u8]) {
    let Some(input) = Input::of(data) else { return };
    let (frames, end) = input.decoded(decode);
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
                let expected = frame(&json, raw);
                match (frames.next(), expected) {
                    (Some(frame), Ok(expected)) => expected.compare(&frame),
                    (None, Err(_)) => {
                        assert!(end.is_err(), "no error for {raw}");
                        return;
                    }
                    (frame, expected) => panic!("{frame:?}, but {expected:?}"),
                }
            }
        }
    }
}

/// The frames, and whether a part of another one is left.
fn decode(chunks: &[bytes::Bytes], limit: usize) -> (Vec<WatchFrame>, Result<bool, CodecError>) {
    let mut decoder = WatchDecoder::new(limit, table().clone());
    let (frames, end) = all(chunks, |chunk| {
        chunk.into_iter().for_each(|chunk| decoder.push(chunk));
        decoder.next()
    });
    (frames, end.map(|()| decoder.has_partial()))
}

#[derive(Debug)]
enum Frame<'a> {
    Event(EventType, Expected<'a>, &'a Json),
    Bookmark { rv: u64, is_end: bool, object: &'a Json },
    Error(Status),
}

fn frame<'a>(json: &'a Json, raw: &RawValue) -> Result<Frame<'a>, &'static str> {
    json.members().ok_or("no object")?;
    let kind = json.once("type").map_err(|()| "two types")?.and_then(Json::text).ok_or("no type")?;
    let object = json.once("object").map_err(|()| "two objects")?.ok_or("no object")?;
    let kind = match kind {
        "ADDED" => EventType::Added,
        "MODIFIED" => EventType::Modified,
        "DELETED" => EventType::Deleted,
        "BOOKMARK" => return bookmark(object),
        "ERROR" => return status(raw).map(Frame::Error).ok_or("no status"),
        _ => return Err("another type"),
    };
    Ok(Frame::Event(kind, Expected::of(object)?, object))
}

fn status(raw: &RawValue) -> Option<Status> {
    #[derive(serde::Deserialize)]
    struct Error<'a> {
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let error: Error<'_> = serde_json::from_str(raw.get()).ok()?;
    serde_json::from_str(error.object.get()).ok()
}

/// Metadata that occurs twice is merged, as Go does it.
fn bookmark(object: &Json) -> Result<Frame<'_>, &'static str> {
    let (mut rv, mut is_end) = (None, false);
    for (name, value) in object.members().ok_or("no object")? {
        match (name.as_str(), value) {
            ("kind" | "apiVersion", Json::Null | Json::Text(..)) => {}
            ("kind" | "apiVersion", _) => return Err("a type that is no string"),
            ("metadata", Json::Object(members)) => {
                for (name, value) in members {
                    match (name.as_str(), value) {
                        ("resourceVersion", Json::Null) => rv = None,
                        ("resourceVersion", Json::Text(digits, _)) => {
                            let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
                            rv = digits.parse().ok().filter(|_| is_decimal);
                        }
                        ("resourceVersion", _) => return Err("a resourceVersion that is no string"),
                        ("annotations", annotations) => {
                            for (_, value) in annotations
                                .members()
                                .unwrap_or_default()
                                .iter()
                                .filter(|(name, _)| name == INITIAL_EVENTS_END)
                            {
                                is_end = match value {
                                    Json::Text(text, _) => text == "true",
                                    Json::Null => false,
                                    _ => return Err("an annotation that is no string"),
                                };
                            }
                        }
                        _ => {}
                    }
                }
            }
            ("metadata", _) => return Err("metadata that is no object"),
            _ => {}
        }
    }
    Ok(Frame::Bookmark { rv: rv.ok_or("no resourceVersion")?, is_end, object })
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
                let written = event_frame(&form, *kind, object, None, Shape::Full).expect("its bytes").into_bytes();
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
                assert_eq!(Json::read(kept).as_ref(), Some(*object));
            }
            (Self::Error(expected), WatchFrame::Error(status)) => assert_eq!(status, expected),
            (expected, frame) => panic!("{frame:?}, but {expected:?}"),
        }
    }
}
