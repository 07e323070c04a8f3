//! A watch stream in protobuf that arrives in chunks, against the same frames as prost reads them; the Status of a frame, and
//! of a body.
//!
//! What may be refused, and why, is listed in `messages`.

use informerd::codec::json::WatchFrame;
use informerd::codec::protobuf::{Form, bookmark_frame, error_frame, read_status, status_body};
use informerd::codec::{CodecError, INITIAL_EVENTS_END, Shape};
use informerd::meta::{Encoding, EventType, ResourceVersion, Status, StatusCause, StatusDetails};
use prost::Message;

use super::input::{Input, Watched, watched};
use super::messages::{
    self, BookmarkMeta, Pod, RawExtension, WatchEvent, Why, assert_listed, decimal, last_text, text, unwrapped,
};
use super::protobuf_item::Expected;

pub fn check(data: &[u8]) {
    let Some(input) = Input::of(data) else { return };
    let (frames, end) = input.decoded(decode);
    let (mut frames, mut rest) = (frames.into_iter(), input.bytes);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let len = u32::from_be_bytes(*length) as usize;
        if len > input.limit {
            assert_eq!(end, Err(CodecError::TooLarge { limit: input.limit }));
            return;
        }
        let Some((event, after)) = after.split_at_checked(len) else { break };
        match (frames.next(), Frame::of(event)) {
            (Some(frame), Ok(expected)) => expected.compare(&frame),
            (Some(frame), Err(why)) => panic!("{frame:?}, in spite of {why:?}"),
            (None, expected) => {
                let why = match expected {
                    Err(why) => Some(why),
                    Ok(Frame::Event(_, _, item, _)) => Expected::why(Ok(item)),
                    Ok(_) => None,
                };
                assert_listed(end.as_ref().expect_err("a frame is missing"), why);
                return;
            }
        }
        rest = after;
    }
    assert!(frames.next().is_none(), "a frame more");
    assert_eq!(end, Ok(!rest.is_empty()));
}

fn decode(chunks: &[bytes::Bytes], limit: usize) -> Watched {
    watched(Encoding::Protobuf, chunks, limit)
}

#[allow(clippy::large_enum_variant, reason = "few of them live at once")]
enum Frame {
    Event(EventType, messages::ApiType, Expected, Vec<u8>),
    Bookmark(u64, bool, Vec<u8>),
    Error(Status),
}

impl Frame {
    fn of(event: &[u8]) -> Result<Self, Why> {
        let event = WatchEvent::decode(event)?;
        let extensions = event.object.iter().map(|bytes| RawExtension::decode(&**bytes)).collect::<Result<Vec<_>, _>>();
        let objects: Vec<_> = extensions?.into_iter().flat_map(|extension| extension.raw).collect();
        let ([kind], [object]) = (&*event.kind, &*objects) else { return Err(Why::Frame) };
        let kind = match &**kind {
            b"ADDED" => EventType::Added,
            b"MODIFIED" => EventType::Modified,
            b"DELETED" => EventType::Deleted,
            b"BOOKMARK" => return Self::bookmark(object),
            b"ERROR" => return status(object).map(Self::Error),
            kind => return Err(if std::str::from_utf8(kind).is_ok() { Why::Frame } else { Why::Text }),
        };
        let (type_meta, message) = unwrapped(object)?;
        Ok(Self::Event(kind, type_meta, Expected::of(&message)?, message))
    }

    fn bookmark(object: &[u8]) -> Result<Self, Why> {
        let (_, message) = unwrapped(object)?;
        let (mut rv, mut is_end) = (None, false);
        for metadata in Pod::decode(&*message)?.metadata {
            let metadata = BookmarkMeta::decode(&*metadata)?;
            rv = metadata.resource_version.last().map_or(rv, |text| decimal(text));
            for entry in metadata.annotations {
                is_end |= entry.key == INITIAL_EVENTS_END.as_bytes() && entry.value == b"true";
            }
        }
        Ok(Self::Bookmark(rv.ok_or(Why::Revision)?, is_end, message))
    }

    fn compare(&self, frame: &WatchFrame) {
        match (self, frame) {
            (Self::Event(expected, types, item, message), WatchFrame::Event { kind, object, type_meta }) => {
                assert_eq!(kind, expected);
                assert_eq!([&*type_meta.api_version, &*type_meta.kind], *types);
                item.compare(object, message);
            }
            (
                Self::Bookmark(rv, is_end, message),
                WatchFrame::Bookmark { rv: read, initial_events_end, object, .. },
            ) => {
                assert_eq!((read.get(), initial_events_end, &object[..]), (*rv, is_end, &message[..]));
                // What is written of it, or instead of it, says the same of another revision.
                for (rv, is_end) in [(1, true), (u64::MAX, false)] {
                    let form = Form::new("v1", "Pod", "PodList");
                    let written = bookmark_frame(&form, Some(object), ResourceVersion(rv), is_end, Shape::Full);
                    let (frames, end) = decode(&[written], usize::MAX);
                    let [WatchFrame::Bookmark { rv: read, initial_events_end, .. }] = &frames[..] else {
                        panic!("{end:?}")
                    };
                    assert_eq!((read.get(), *initial_events_end), (rv, is_end));
                }
            }
            (Self::Error(expected), WatchFrame::Error(status)) => {
                assert_eq!(status, expected);
                // What is written of it is read as the same.
                let body = status_body(status);
                assert_eq!(read_status(&body), Ok(status.clone()));
                assert_eq!(decode(&[error_frame(status)], usize::MAX).1, Ok(false));
            }
            (_, frame) => panic!("another frame: {frame:?}"),
        }
    }
}

fn status(object: &[u8]) -> Result<Status, Why> {
    let ([_, kind], message) = unwrapped(object)?;
    if kind != "Status" {
        return Err(Why::Status);
    }
    let read = messages::Status::decode(&*message)?;
    let mut status = Status::failure(u16::try_from(read.code).unwrap_or(0), &text(&read.reason), text(&read.message));
    status.status = text(&read.status);
    for metadata in read.metadata {
        let token = last_text(&messages::StatusMetadata::decode(&*metadata)?.continue_token)?;
        if !token.is_empty() {
            status.metadata.continue_token = token;
        }
    }
    for details in read.details {
        let details = messages::StatusDetails::decode(&*details)?;
        let cause = |cause: messages::StatusCause| StatusCause {
            reason: text(&cause.reason),
            message: text(&cause.message),
            field: text(&cause.field),
        };
        status.details = Some(StatusDetails {
            name: text(&details.name),
            group: text(&details.group),
            kind: text(&details.kind),
            uid: text(&details.uid),
            causes: details.causes.into_iter().map(cause).collect(),
            retry_after_seconds: u32::try_from(details.retry_after_seconds).unwrap_or(0),
        });
    }
    Ok(status)
}
