//! Owner references, which no attribute of an object holds: they are read where somebody asks.

use crate::meta::{Encoding, Object};

use super::{json, protobuf};

/// Whether the uid of any owner reference is one that is asked for. Metadata that cannot be read has no owners.
pub fn has_owner(object: &Object, mut asked: impl FnMut(&str) -> bool) -> bool {
    let metadata = object.raw().metadata();
    match object.raw().encoding() {
        Encoding::Json | Encoding::Table => json::has_owner(&metadata, &mut asked),
        Encoding::Protobuf => protobuf::has_owner(&metadata, &mut asked).unwrap_or(false),
    }
}
