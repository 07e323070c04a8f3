//! Owner references. They are not stored as attributes of an object, so they are read from its metadata on demand.

use crate::meta::{Encoding, Object};

use super::{json, protobuf};

/// Whether `asked` accepts the uid of any owner reference. Metadata that cannot be read has no owners.
pub fn has_owner(object: &Object, mut asked: impl FnMut(&str) -> bool) -> bool {
    let metadata = object.raw().metadata();
    match object.encoding() {
        Encoding::Json | Encoding::Table => json::has_owner(&metadata, &mut asked),
        Encoding::Protobuf => protobuf::has_owner(&metadata, &mut asked).unwrap_or(false),
    }
}
