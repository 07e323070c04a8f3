//! A list in JSON that arrives in chunks, against the same list as serde_json reads it.
//!
//! Deliberate differences from Go's decoder are those of one object (see `json_item`), and that the members of the list must
//! be unique, too.

use informerd::codec::CodecError;
use informerd::codec::json::{ListDecoder, ListMeta, TypeMeta};
use informerd::meta::Object;

use super::input::{Input, all};
use super::json::{Json, is_beyond, is_valid};
use super::json_item::Expected;
use super::pods::table;

pub fn check(data: &[u8]) {
    let Some(input) = Input::of(data) else { return };
    let (items, end) = input.decoded(decode);
    if is_beyond(&end, input.bytes) {
        return;
    }
    assert!(end.is_err() || is_valid(input.bytes), "a list that is no JSON");
    let Some(json) = Json::read(input.bytes) else { return };
    match (&end, Head::of(&json, "items", Expected::of)) {
        (Ok(end), Ok(expected)) => {
            assert_eq!(items.len(), expected.items.len());
            for ((object, type_meta), item) in items.iter().zip(&expected.items) {
                item.compare(object, type_meta);
            }
            expected.compare(end);
        }
        (Err(_), Err(_)) => {}
        (end, expected) => panic!("{end:?}, but {expected:?}"),
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
    pub items: Vec<Expected<'a>>,
}

impl<'a> Head<'a> {
    /// # Errors
    /// Names what must be refused.
    pub fn of(
        json: &'a Json,
        items: &str,
        item: impl Fn(&'a Json) -> Result<Expected<'a>, &'static str>,
    ) -> Result<Self, &'static str> {
        json.members().ok_or("no object")?;
        let text = |name| match json.once(name) {
            Ok(Some(value)) => value.text().ok_or("a type that is no string"),
            Ok(None) => Err("no type"),
            Err(()) => Err("a type that occurs twice"),
        };
        let (kind, api_version) = (text("kind")?, text("apiVersion")?);
        let items = match json.once(items).map_err(|()| "items that occur twice")? {
            Some(Json::Null) => Vec::new(),
            Some(Json::Array(items)) => items.iter().map(item).collect::<Result<_, _>>()?,
            _ => return Err("no items"),
        };
        let metadata = json.once("metadata").map_err(|()| "metadata that occurs twice")?.ok_or("no metadata")?;
        let (mut rv, mut continue_token, mut remaining) = (None, "", None);
        for (name, value) in metadata.members().ok_or("metadata that is no object")? {
            match (name.as_str(), value) {
                ("resourceVersion" | "continue" | "remainingItemCount", Json::Null) => {}
                ("resourceVersion", Json::Text(digits, _)) => {
                    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
                    rv = Some(digits.parse().ok().filter(|_| is_decimal).ok_or("no decimal resourceVersion")?);
                }
                ("continue", Json::Text(text, _)) => continue_token = text,
                ("remainingItemCount", Json::Number(number)) => {
                    remaining = Some(number.parse().map_err(|_| "a count that is no integer")?);
                }
                ("resourceVersion" | "continue" | "remainingItemCount", _) => return Err("metadata of another type"),
                _ => {}
            }
        }
        Ok(Self { kind, api_version, rv: rv.ok_or("no resourceVersion")?, continue_token, remaining, items })
    }

    pub fn compare(&self, end: &ListMeta) {
        assert_eq!((&*end.list_kind, &*end.api_version), (self.kind, self.api_version));
        assert_eq!((end.rv.get(), &*end.continue_token), (self.rv, self.continue_token));
        assert_eq!(end.remaining_item_count, self.remaining);
    }
}
