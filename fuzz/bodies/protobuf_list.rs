//! A list in protobuf that arrives in chunks, against the same list as prost reads it.
//!
//! Deliberate differences are those of one object (see `protobuf_item`), and that nothing but strings and messages may stand
//! in a list or around it: what has no length cannot be passed over before it is whole.

use informerd::codec::CodecError;
use informerd::codec::json::ListMeta;
use informerd::codec::protobuf::ListDecoder;
use informerd::meta::Object;

use super::input::{Input, measured};
use super::messages::{decimal, unwrapped_list};
use super::pods::table;
use super::protobuf_item::{Expected, is_stricter};

pub fn check(data: &[u8]) {
    let Some(input) = Input::of(data) else { return };
    let whole = input.whole();
    let (items, end) = measured(input.bytes.len(), || decode(&whole, input.limit));
    let (in_chunks, end_in_chunks) = decode(&input.chunks(), input.limit);
    let shown = |items: &[Object]| items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>();
    assert_eq!((shown(&items), &end), (shown(&in_chunks), &end_in_chunks), "it depends on the chunks");
    let expected = unwrapped_list(input.bytes).and_then(|(type_meta, metadata, messages)| {
        let items = messages.iter().map(|item| Expected::of(item)).collect::<Option<Vec<_>>>()?;
        Some((type_meta, metadata, messages, items))
    });
    match (end, expected) {
        (Ok(end), Some((type_meta, metadata, messages, expected))) => {
            assert_eq!((&*end.api_version, &*end.list_kind), (&*type_meta.api_version, &*type_meta.kind));
            assert_eq!(Some(end.rv.get()), metadata.resource_version.last().and_then(|text| decimal(text)));
            assert_eq!(end.continue_token, metadata.continue_token);
            assert_eq!(end.remaining_item_count, metadata.remaining_item_count);
            assert_eq!(items.len(), messages.len());
            for ((item, expected), message) in items.iter().zip(expected).zip(&messages) {
                expected.compare(item, message);
            }
        }
        (Ok(end), None) => panic!("{end:?}, which prost does not read"),
        (Err(CodecError::TooLarge { .. }), None) => {}
        (Err(CodecError::TooLarge { limit }), Some(_)) => assert!(input.is_bounded(), "nothing is longer than {limit}"),
        (Err(error), Some((.., expected))) => {
            let is_stricter = is_stricter(&error) || expected.iter().any(|item| item.fields.is_none());
            assert!(is_stricter, "{error:?}, but prost reads it");
        }
        (Err(_), None) => {}
    }
}

fn decode(chunks: &[bytes::Bytes], limit: usize) -> (Vec<Object>, Result<ListMeta, CodecError>) {
    let mut decoder = ListDecoder::new(limit, table().clone());
    let mut items = Vec::new();
    for chunk in chunks {
        decoder.push(chunk.clone());
        loop {
            match decoder.next() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next().err(), Some(error.clone()), "an error that passes");
                    return (items, Err(error));
                }
            }
        }
    }
    (items, decoder.finish())
}
