//! Computes the memory of a decoded message from its bytes: a few bytes on the wire can need a hundred bytes each in
//! memory.

use std::collections::HashMap;
use std::sync::LazyLock;

use prost::Message as _;
use prost::bytes::Buf as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet, MessageOptions};

use crate::grpc::pb;
use crate::memory::allocated;

/// Messages by their full name, which begins with a dot, and the name of the request message of each method.
#[derive(Debug, Default)]
struct Schema {
    messages: HashMap<String, MessageKind>,
    requests: HashMap<String, String>,
}

/// A message type: its fields by number.
#[derive(Debug, Default)]
struct MessageKind {
    fields: HashMap<u32, Field>,
    /// Whether it is a map entry, which is decoded to two strings in a hash table.
    is_entry: bool,
}

#[derive(Debug)]
enum Field {
    Message(String),
    Text,
    Number,
}

/// A nested message: the size of the largest one, doubled because the capacity of a vector may be twice its length.
const ELEMENT: usize = 320;
/// A map entry with its share of the hash table, which may be half empty.
const ENTRY: usize = 128;
/// A string in such a vector, without its bytes.
const TEXT: usize = 48;
const NUMBER: usize = 8;

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::published);

/// The maximum size in bytes of the decoded request of this method. `method` is the path of a call. A method that is
/// not in the published API counts with the size of its message.
pub(super) fn of_request(method: &str, message: &[u8]) -> usize {
    let kind = SCHEMA.requests.get(method).and_then(|name| SCHEMA.messages.get(name));
    kind.map_or(message.len(), |kind| SCHEMA.cost(kind, message))
}

// === impl Schema ===

impl Schema {
    fn published() -> Self {
        let mut schema = Self::default();
        // The descriptors are generated with the API, so they can be decoded.
        for file in FileDescriptorSet::decode(pb::DESCRIPTORS).unwrap_or_default().file {
            let package = format!(".{}", file.package());
            file.message_type.iter().for_each(|message| schema.add(&package, message));
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    schema.requests.insert(path, method.input_type().to_owned());
                }
            }
        }
        schema
    }

    fn add(&mut self, within: &str, message: &DescriptorProto) {
        let name = format!("{within}.{}", message.name());
        message.nested_type.iter().for_each(|nested| self.add(&name, nested));
        let is_entry = message.options.as_ref().is_some_and(MessageOptions::map_entry);
        let fields = message.field.iter().filter_map(|field| Some((u32::try_from(field.number()).ok()?, kind(field))));
        self.messages.insert(name, MessageKind { fields: fields.collect(), is_entry });
    }

    /// Stops where the message cannot be parsed further, as the decoder does.
    fn cost(&self, kind: &MessageKind, mut rest: &[u8]) -> usize {
        let mut sum = 0_usize;
        while !rest.is_empty() {
            let Ok((number, wire)) = decode_key(&mut rest) else { break };
            let field = kind.fields.get(&number);
            if wire != WireType::LengthDelimited {
                if skip_field(wire, number, &mut rest, DecodeContext::default()).is_err() {
                    break;
                }
                sum += field.map_or(0, |_| NUMBER);
                continue;
            }
            let length = decode_varint(&mut rest).ok().and_then(|length| usize::try_from(length).ok());
            let Some(part) = length.and_then(|length| rest.get(..length)) else { break };
            rest.advance(part.len());
            sum += match field {
                // The decoder skips it.
                None => 0,
                Some(Field::Message(name)) => match self.messages.get(name) {
                    Some(entry) if entry.is_entry => ENTRY + self.cost(entry, part),
                    Some(message) => ELEMENT + self.cost(message, part),
                    None => ELEMENT + part.len(),
                },
                Some(Field::Text) if kind.is_entry => allocated(part.len()),
                Some(Field::Text) => TEXT + allocated(part.len()),
                Some(Field::Number) => NUMBER * part.len(),
            };
        }
        sum
    }
}

fn kind(field: &FieldDescriptorProto) -> Field {
    debug_assert!(field.label() != Label::Required, "there are none in this syntax");
    match field.r#type() {
        Type::Message | Type::Group => Field::Message(field.type_name().to_owned()),
        Type::String | Type::Bytes => Field::Text,
        _ => Field::Number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::pb::v1;

    const LIST: &str = "/informerd.v1.Objects/List";

    fn list(selection: v1::Selection) -> Vec<u8> {
        v1::ListRequest { selection: Some(selection), ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn parts_cost_what_they_become() {
        let filters = vec![v1::Filter::default(); 1000];
        let message = list(v1::Selection { filters, ..Default::default() });
        assert!(message.len() < 2100);
        let cost = of_request(LIST, &message);
        assert!(cost >= 1000 * std::mem::size_of::<v1::Filter>() * 2, "{cost}");
        let names = vec![v1::Filter { names: vec![String::new(); 1000], ..Default::default() }];
        let cost = of_request(LIST, &list(v1::Selection { filters: names, ..Default::default() }));
        assert!(cost >= 1000 * std::mem::size_of::<String>() * 2, "{cost}");
        let drop = of_request(LIST, &list(v1::Selection { drop: vec![1; 1000], ..Default::default() }));
        assert!((4000..10_000).contains(&drop), "{drop}");
        let known = (0..1000).map(|n| (format!("{n:036}"), format!("{n:07}"))).collect();
        let watch = v1::WatchRequest { known, ..Default::default() }.encode_to_vec();
        let cost = of_request("/informerd.v1.Objects/Watch", &watch);
        assert!((150_000..250_000).contains(&cost), "{cost}");
        let sizes = [size_of::<v1::Filter>(), size_of::<v1::Selection>(), size_of::<v1::IndexTerm>()];
        assert!(sizes.iter().all(|size| 2 * size <= ELEMENT), "{sizes:?}");
    }

    #[test]
    fn every_method_of_ours_is_known_and_nothing_else() {
        for method in ["Objects/Get", "Objects/Sync", "Queue/Work", "Cache/WatchInformers"] {
            assert_eq!(of_request(&format!("/informerd.v1.{method}"), &[]), 0);
            assert!(SCHEMA.requests.contains_key(&format!("/informerd.v1.{method}")), "{method}");
        }
        assert_eq!(of_request("/other/Method", b"text"), 4);
    }

    #[test]
    fn what_cannot_be_read_ends_the_walk() {
        for bad in [&[0x0a][..], &[0x0a, 200], &[0xff; 20], &[0x0b], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(of_request(LIST, bad) <= ELEMENT);
        }
    }
}
