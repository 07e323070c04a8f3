//! A list in JSON that arrives in chunks, against the same list as serde_json reads it.
//!
//! What may be refused, and why, is listed in `faults`.

use informerd::codec::CodecError;
use informerd::codec::json::ListMeta;
use informerd::meta::{Encoding, Object};

use super::faults::{Faults, Why, agreed, malformed};
use super::input::{Input, listed, repeated};
use super::json::{Json, is_beyond, is_valid};
use super::json_item::Expected;
use super::messages::decimal;

/// What an item says, by another reader.
type Item = fn(&Json) -> Result<Expected<'_>, Faults>;

pub fn check(data: &[u8]) {
    check_items(data, Encoding::Json, "items", item, |_, _| {});
}

fn item(json: &Json) -> Result<Expected<'_>, Faults> {
    Expected::of(json)
}

/// A list or a table, and what else is to be looked at of each of its `items`.
pub fn check_items(
    data: &[u8],
    encoding: Encoding,
    items: &'static str,
    item: Item,
    mut each: impl FnMut(Object, &Json),
) {
    let data = repeated(data);
    let Some(input) = Input::of(&data) else { return };
    let (decoded, end) = input.decoded(|chunks, limit| listed(encoding, chunks, limit));
    if is_beyond(&end, input.bytes) {
        return;
    }
    assert!(end.is_err() || is_valid(input.bytes), "a list that is no JSON");
    let Some(json) = Json::read(input.bytes) else { return };
    let count = decoded.len();
    // The items before one that is refused are read.
    if let Ok(Some(Json::Array(expected))) = json.once(items) {
        for ((object, type_meta), json) in decoded.into_iter().zip(expected) {
            item(json).expect("an object").compare(&object, &type_meta);
            each(object, json);
        }
    }
    if let Some((end, expected)) = agreed(end, Head::of(&json, items, item)) {
        assert_eq!(count, expected.items);
        expected.compare(&end);
    }
}

/// What a list or a table says, by another reader.
#[derive(Debug)]
struct Head<'a> {
    kind: &'a str,
    api_version: &'a str,
    rv: u64,
    continue_token: &'a str,
    remaining: Option<i64>,
    items: usize,
}

impl<'a> Head<'a> {
    fn of(json: &'a Json, items: &'static str, item: Item) -> Result<Self, Faults> {
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

    fn compare(&self, end: &ListMeta) {
        assert_eq!((&*end.list_kind, &*end.api_version), (self.kind, self.api_version));
        assert_eq!((end.rv.get(), &*end.continue_token), (self.rv, self.continue_token));
        assert_eq!(end.remaining_item_count, self.remaining);
    }
}
