//! Compares the output with prost's encoding of the published messages.

use bytes::Buf as _;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::http::testing::inflate;
use crate::memory::{Ledger, Pressure};

fn event() -> impl Strategy<Value = v1::Event> {
    let key = ("[a-z]{0,9}", "[a-z]{1,9}", "[a-z]{0,9}", "[0-9]{0,9}")
        .prop_map(|(namespace, name, uid, resource_version)| v1::Key { namespace, name, uid, resource_version });
    let object = prop_oneof![0..40_usize, Just(SHARED - 1), Just(SHARED), Just(3 * SHARED)];
    (0..4, key, object, any::<bool>()).prop_map(|(kind, key, object, partial)| v1::Event {
        r#type: kind,
        key: Some(key),
        object: vec![b'x'; object].into(),
        partial,
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        proptest::collection::vec(event(), 0..5).prop_map(|events| Frame::Events(v1::Events { events })),
        Just(Frame::Bookmark(v1::Bookmark { upstream_silence: None })),
        any::<bool>().prop_map(|resumed| Frame::Started(v1::Started { resumed, encoding: 1 })),
        any::<u64>().prop_map(|count| Frame::SnapshotEnd(v1::SnapshotEnd { count, gone_uids: vec!["u".to_owned()] })),
    ]
}

fn response() -> impl Strategy<Value = v1::WatchResponse> {
    (proptest::collection::vec(any::<u8>(), 0..20), "[0-9]{0,9}", frame()).prop_map(|(token, rv, frame)| {
        v1::WatchResponse { resume_token: token.into(), resource_version: rv, frame: Some(frame) }
    })
}

fn encoded(event: v1::Event) -> EncodedEvent {
    EncodedEvent::new(event.r#type(), event.key.unwrap(), event.partial, event.object)
}

fn message(response: v1::WatchResponse) -> WatchMessage {
    let content = match response.frame.unwrap() {
        Frame::Events(events) => Content::Events(events.events.into_iter().map(encoded).collect()),
        frame => frame.into(),
    };
    WatchMessage::new(response.resume_token, response.resource_version, content)
}

/// The messages of a stream, decompressed.
fn messages(pieces: Pieces) -> Vec<Vec<u8>> {
    let len = pieces.len();
    let bytes = pieces.finish().into_iter().flatten().collect::<Vec<u8>>();
    assert_eq!(bytes.len(), len);
    let (mut rest, mut messages) = (bytes.as_slice(), Vec::new());
    while let Some((head, tail)) = rest.split_first_chunk::<PREFIX>() {
        let len = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
        let (message, tail) = tail.split_at(len);
        messages.push(if head[0] == 0 { message.to_vec() } else { inflate(message) });
        rest = tail;
    }
    assert!(rest.is_empty());
    messages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn is_what_the_published_messages_are(responses in proptest::collection::vec(response(), 0..4), id: u64, gzip: bool) {
        let (mut watch, mut sync) = (Pieces::default(), Pieces::default());
        for response in &responses {
            let pushed = message(response.clone());
            prop_assert_eq!(pushed.len(), response.encoded_len());
            for (pieces, message) in [
                (&mut watch, Message::Watch(pushed)),
                (&mut sync, Message::Sync(id, message(response.clone()))),
            ] {
                if gzip { pieces.push_gzip(message).unwrap() } else { pieces.push(message) }
            }
        }
        let decoded: Vec<_> = messages(watch).iter().map(|it| v1::WatchResponse::decode(&it[..]).unwrap()).collect();
        prop_assert_eq!(&decoded, &responses);
        let decoded: Vec<_> = messages(sync).iter().map(|it| v1::SyncResponse::decode(&it[..]).unwrap()).collect();
        let expected: Vec<_> =
            responses.into_iter().map(|it| v1::SyncResponse { watch_id: id, response: Some(it) }).collect();
        prop_assert_eq!(decoded, expected);
    }
}

#[test]
fn a_large_object_is_not_copied() {
    let object = Bytes::from(vec![b'x'; SHARED]);
    let event = EncodedEvent::new(v1::event::Type::Added, v1::Key::default(), false, object.clone());
    let mut pieces = Pieces::default();
    pieces.push(Message::Watch(WatchMessage::new(Bytes::new(), String::new(), Content::Events(smallvec![event]))));
    assert_eq!(pieces.finish().iter().nth(1).unwrap().as_ptr(), object.as_ptr());
}

#[test]
fn a_large_message_holds_its_memory_until_it_is_sent() {
    for gzip in [false, true] {
        let ledger = Ledger::new(1 << 20, Pressure::default());
        let mut pieces = Pieces::default();
        for bytes in [1000, 2000] {
            let event = EncodedEvent::new(v1::event::Type::Added, v1::Key::default(), false, vec![b'x'; SHARED].into());
            let message = WatchMessage::new(Bytes::new(), String::new(), Content::Events(smallvec![event]));
            let message = Message::Sync(1, message.within(Some(Box::new(ledger.reserve(bytes).unwrap()))));
            if gzip { pieces.push_gzip(message).unwrap() } else { pieces.push(message) }
        }
        let mut sent = pieces.finish();
        sent.advance(sent.len() - 1);
        assert_eq!(ledger.used(), 3000, "gzip: {gzip}");
        sent.advance(1);
        assert_eq!(ledger.used(), 0, "gzip: {gzip}");
    }
}

fn tokens(selection: &str) -> TokenBase {
    let filters = vec![v1::Filter { namespace: selection.into(), ..Default::default() }];
    TokenBase::new("c", &v1::Selection { filters, ..Default::default() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_shared_message_is_what_each_watch_would_encode(
        events in proptest::collection::vec((event(), 0..2_u64, any::<bool>()), 1..5), gzip: bool,
    ) {
        let (mut shared, mut own) = ([Pieces::default(), Pieces::default()], [Pieces::default(), Pieces::default()]);
        for (event, complete, other) in events {
            let encoded = encoded(event);
            // The first watch decides which message is kept.
            WatchMessage::at(tokens("a"), ResourceVersion(1), Content::Events(smallvec![encoded.clone()]));
            let (tokens, complete) = (tokens(if other { "b" } else { "a" }), ResourceVersion(complete));
            let content = || Content::Events(smallvec![encoded.clone()]);
            let kinds: [fn(WatchMessage) -> Message; 2] = [Message::Watch, |message| Message::Sync(7, message)];
            for (at, kind) in kinds.into_iter().enumerate() {
                for (pieces, message) in [
                    (&mut shared[at], WatchMessage::at(tokens, complete, content())),
                    (&mut own[at], WatchMessage::encode(tokens, complete, content())),
                ] {
                    let message = kind(message);
                    if gzip { pieces.push_gzip(message).unwrap() } else { pieces.push(message) }
                }
            }
        }
        for (shared, own) in shared.into_iter().zip(own) {
            prop_assert_eq!(messages(shared), messages(own));
        }
    }
}

#[test]
fn watches_with_the_same_tokens_share_one_message() {
    let event = EncodedEvent::new(v1::event::Type::Added, v1::Key::default(), false, Bytes::from_static(b"x"));
    let piece = |tokens| {
        let mut pieces = Pieces::default();
        let content = Content::Events(smallvec![event.clone()]);
        pieces.push(Message::Watch(WatchMessage::at(tokens, ResourceVersion(1), content)));
        pieces.finish().chunk().as_ptr()
    };
    let (one, same, other) = (piece(tokens("a")), piece(tokens("a")), piece(tokens("b")));
    assert!(one == same && one != other);
}
