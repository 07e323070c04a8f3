//! Names an object that cannot be decoded, as far as it can be read.

use crate::lossy::lossy;

use super::envelope::MAGIC;
use super::watch_decoder::LENGTH;
use super::wire::{Fields, Value};

/// The name of the object with this message, and its namespace. The message may be incomplete or malformed.
pub(super) fn named(message: &[u8]) -> Option<String> {
    let metadata = field(message, 1)?;
    crate::odd_name(&lossy(field(metadata, 3).unwrap_or_default()), &lossy(field(metadata, 1)?))
}

/// The same for the object in a frame of a watch.
pub(crate) fn named_in_frame(frame: &[u8]) -> Option<String> {
    named(field(field(field(frame.get(LENGTH..)?, 2)?, 1)?.strip_prefix(MAGIC)?, 2)?)
}

/// The first field with this number, if it is a string or a message. What follows it does not matter.
fn field(message: &[u8], number: u32) -> Option<&[u8]> {
    let mut fields = Fields::new(message);
    while let Ok(Some(field)) = fields.next() {
        if let (true, Value::Bytes(bytes)) = (field.number == number, field.value) {
            return Some(bytes);
        }
    }
    None
}
