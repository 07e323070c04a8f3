//! A list in JSON that arrives in chunks, against the same list as serde_json reads it.
//!
//! What may be refused, and why, is listed in `faults`.

use informerd::codec::CodecError;
use informerd::codec::json::{ListDecoder, ListMeta, TypeMeta};
use informerd::meta::Object;

use super::faults::{Faults, Why, agreed, malformed};
use super::input::{Input, all, repeated};
use super::json::{Json, is_beyond, is_valid};
use super::json_item::Expected;
use super::messages::decimal;
use super::pods::table;

pub fn check(data: &[u8]) {
    let data = repeated(data);
    let Some(input) = Input::of(&data) else { return };
    let (items, end) = input.decoded(decode);
    if is_beyond(&end, input.bytes) {
        return;
    }
    assert!(end.is_err() || is_valid(input.bytes), "a list that is no JSON");
    let Some(json) = Json::read(input.bytes) else { return };
    // The items before one that is refused are read.
    if let Ok(Some(Json::Array(expected))) = json.once("items") {
        for ((object, type_meta), item) in items.iter().zip(expected) {
            Expected::of(item).expect("an object").compare(object, type_meta);
        }
    }
    if let Some((end, expected)) = agreed(end, Head::of(&json, "items", Expected::of)) {
        assert_eq!(items.len(), expected.items);
        expected.compare(&end);
    }
}

type Decoded = (Vec<(Object, TypeMeta)>, Result<ListMeta, CodecError>);

fn decode(chunks: &[bytes::Bytes], limit: usize) -> Decoded {
    let mut decoder = ListDecoder::new(limit, table().clone());
    let (items, end) = all(chunks, |chunk| {
        chunk.into_iter().for_each(|chunk| decoder.push(chunk));
        decoder.next()
    });
    (items, end.and_then(|()| decoder.finish()))
}

/// What a list or a table says, by another reader.
#[derive(Debug)]
pub struct Head<'a> {
    kind: &'a str,
    api_version: &'a str,
    rv: u64,
    continue_token: &'a str,
    remaining: Option<i64>,
    pub items: usize,
}

impl<'a> Head<'a> {
    /// # Errors
    /// All that is wrong with it.
    pub fn of(
        json: &'a Json,
        items: &'static str,
        item: impl Fn(&'a Json) -> Result<Expected<'a>, Faults>,
    ) -> Result<Self, Faults> {
        if json.members().is_none() {
            return Err(Faults::of(malformed("expected a list"), Why::of(json)));
        }
        let mut faults = Faults::default();
        let [kind, api_version] = ["kind", "apiVersion"].map(|name| {
            faults.texts(json, name);
            faults.only(json, name).and_then(Json::text).unwrap_or_default()
        });
        let mut count = 0;
        for value in json.named(items) {
            match value {
                Json::Null => {}
                Json::Array(elements) => {
                    count += elements.len();
                    elements.iter().filter_map(|element| item(element).err()).for_each(|more| faults.append(more));
                }
                _ => faults.push(malformed("expected a value"), Why::Type),
            }
        }
        if json.named(items).nth(1).is_some() {
            faults.push(CodecError::Duplicate("items"), Why::Twice);
        }
        let (mut rv, mut continue_token, mut remaining) = (None, "", None);
        let metadata = json.named("metadata").filter(|metadata| faults.is_object(metadata)).collect::<Vec<_>>();
        for (name, value) in metadata.into_iter().filter_map(Json::members).flatten() {
            match (name.as_str(), value) {
                ("resourceVersion" | "continue" | "remainingItemCount", Json::Null) => {}
                ("resourceVersion", Json::Text(digits, _)) => match decimal(digits.as_bytes()) {
                    Some(revision) => rv = Some(revision),
                    None => faults.push(CodecError::Invalid("metadata.resourceVersion"), Why::Revision),
                },
                ("resourceVersion", _) => faults.push(CodecError::Invalid("metadata.resourceVersion"), Why::Type),
                ("continue", Json::Text(text, _)) => continue_token = text,
                ("continue", _) => faults.push(CodecError::Invalid("metadata.continue"), Why::Type),
                ("remainingItemCount", Json::Number(number)) => match number.parse::<i64>() {
                    Ok(number) => remaining = Some(number),
                    Err(_) => faults.push(CodecError::Invalid("metadata.remainingItemCount"), Why::Type),
                },
                ("remainingItemCount", _) => faults.push(malformed("expected a digit"), Why::Type),
                _ => {}
            }
        }
        faults.only(json, "metadata");
        // What is missing is seen at the end.
        faults.or(())?;
        let mut faults = Faults::default();
        for name in [items, "metadata", "kind", "apiVersion"] {
            faults.needed(json, name);
        }
        if rv.is_none() {
            faults.push(CodecError::Missing("metadata.resourceVersion"), Why::Missing);
        }
        let rv = rv.unwrap_or_default();
        faults.or(Self { kind, api_version, rv, continue_token, remaining, items: count })
    }

    pub fn compare(&self, end: &ListMeta) {
        assert_eq!((&*end.list_kind, &*end.api_version), (self.kind, self.api_version));
        assert_eq!((end.rv.get(), &*end.continue_token), (self.rv, self.continue_token));
        assert_eq!(end.remaining_item_count, self.remaining);
    }
}
