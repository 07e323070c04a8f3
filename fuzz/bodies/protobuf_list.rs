//! A list in protobuf that arrives in chunks, against the same list as prost reads it.
//!
//! What may be refused, and why, is listed in `messages`.

use informerd::codec::json::ListMeta;
use informerd::codec::{CodecError, ListDecoder};
use informerd::meta::{Encoding, Object};

use super::input::{Input, all};
use super::messages::{assert_listed, decimal, last_text, unwrapped_list};
use super::pods::table;
use super::protobuf_item::Expected;

pub fn check(data: &[u8]) {
    let Some(input) = Input::of(data) else { return };
    let (items, end) = input.decoded(decode);
    let expected = unwrapped_list(input.bytes).map(|(type_meta, metadata, messages)| {
        let items: Vec<_> = messages.iter().map(|item| Expected::of(item)).collect();
        (type_meta, metadata, messages, items)
    });
    match (end, expected) {
        (Ok(end), Ok((type_meta, metadata, messages, expected))) => {
            assert_eq!([&*end.api_version, &*end.list_kind], type_meta);
            assert_eq!(Some(end.rv.get()), metadata.resource_version.last().and_then(|text| decimal(text)));
            assert_eq!(Ok(end.continue_token), last_text(&metadata.continue_token));
            assert_eq!(end.remaining_item_count, metadata.remaining_item_count);
            assert_eq!(items.len(), messages.len());
            for ((item, expected), message) in items.iter().zip(expected).zip(&messages) {
                expected.expect("an item that is read").compare(item, message);
            }
        }
        (Ok(end), Err(why)) => panic!("{end:?}, in spite of {why:?}"),
        // A field may say that it is longer than the limit. Then it is cut.
        (Err(CodecError::TooLarge { limit }), expected) => {
            assert!(input.is_bounded() || expected.is_err(), "nothing is longer than {limit}");
        }
        (Err(error), Err(why)) => assert_listed(&error, Some(why)),
        // The items before the one that is refused are read.
        (Err(error), Ok((.., expected))) => {
            assert_listed(&error, expected.into_iter().find_map(Expected::why));
        }
    }
}

/// Without the types of the items, which are empty: in the bound on what is allocated, there is no room for them.
fn decode(chunks: &[bytes::Bytes], limit: usize) -> (Vec<Object>, Result<ListMeta, CodecError>) {
    let mut decoder = ListDecoder::new(Encoding::Protobuf, limit, table().clone());
    let (items, end) = all(chunks, |chunk| {
        chunk.into_iter().for_each(|chunk| decoder.push(chunk));
        Ok(decoder.next()?.map(|(object, _)| object))
    });
    (items, end.and_then(|()| decoder.finish()))
}
