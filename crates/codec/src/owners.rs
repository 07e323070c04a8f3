//! Owner references. They are not stored as attributes of an object, so they are read from its metadata on demand.

use informerd_meta::{Encoding, Object};

use super::{json, protobuf};

/// Whether `asked` accepts the uid of any owner reference. Metadata that cannot be parsed has no owners. If the bytes of the
/// object are damaged, nobody knows: it counts as accepted, so that the answer to it ends with an error.
pub fn has_owner(object: &Object, mut asked: impl FnMut(&str) -> bool) -> bool {
    let Ok(raw) = object.raw_for_upkeep() else { return true };
    let metadata = raw.metadata();
    match object.encoding() {
        Encoding::Json | Encoding::Table => json::has_owner(&metadata, &mut asked),
        Encoding::Protobuf => protobuf::has_owner(&metadata, &mut asked).unwrap_or(false),
    }
}
