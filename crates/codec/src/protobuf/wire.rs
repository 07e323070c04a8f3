//! The wire format: varints, tags and lengths, read from untrusted bytes.

use std::borrow::Cow;

use crate::CodecError;
use crate::lossy::lossy;

pub(super) type Result<T> = std::result::Result<T, CodecError>;

/// The value after a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Varint(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// A fixed-size value of four or eight bytes.
    Fixed,
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field<'a> {
    pub number: u32,
    pub value: Value<'a>,
    /// The start of its tag, counted from the start of the message.
    pub start: usize,
    /// The end of the value.
    pub end: usize,
}

/// Iterates over the fields of one message. It does not examine the contents of the fields.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

/// The maximum length of a varint, in bytes.
const LONGEST: usize = 10;

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Reads a varint at the start of `bytes`. Returns it with its length, or `None` when it is incomplete.
///
/// # Errors
/// When it is longer than a 64-bit number needs.
pub(super) fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().take(LONGEST).enumerate() {
        // The tenth byte has room for one bit.
        if index == LONGEST - 1 && byte > 1 {
            return Err(CodecError::Invalid("varint"));
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() >= LONGEST { Err(CodecError::Invalid("varint")) } else { Ok(None) }
}

/// Splits a tag into the field number and the wire type.
///
/// # Errors
/// When the field number is invalid.
pub(super) fn split_tag(tag: u64) -> Result<(u32, u64)> {
    let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
    Ok((number.ok_or(CodecError::Invalid("field number"))?, tag & 7))
}

/// Whether this is the wire type of strings, bytes and messages.
pub(super) fn has_length(wire_type: u64) -> bool {
    wire_type == BYTES
}

/// The length of a varint, in bytes.
pub(super) const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// The length of a field of `len` bytes with its tag and length prefix, for field numbers below 16.
pub(super) const fn field_len(len: u64) -> u64 {
    1 + varint_len(len) as u64 + len
}

pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "seven bits")]
    out.push(value as u8);
}

/// Writes the tag and the length of a field of `len` bytes. `number` is below 16.
pub(super) fn put_header(out: &mut Vec<u8>, number: u8, len: u64) {
    out.push(number << 3 | 2);
    put_varint(out, len);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    put_header(out, number, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a number. A negative number is written as its two's complement.
pub(super) fn put_number(out: &mut Vec<u8>, number: u8, value: i64) {
    out.push(number << 3);
    put_varint(out, value.cast_unsigned());
}

// === impl Fields ===

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let rest = self.message.get(self.at..).unwrap_or(&[]);
        let len = usize::try_from(len).map_err(|_| CodecError::Truncated)?;
        let taken = rest.get(..len).ok_or(CodecError::Truncated)?;
        self.at += len;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64> {
        let rest = self.message.get(self.at..).unwrap_or(&[]);
        let (value, len) = varint(rest)?.ok_or(CodecError::Truncated)?;
        self.at += len;
        Ok(value)
    }

    /// Returns the next field, or `None` at the end of the message.
    ///
    /// # Errors
    /// When the remaining bytes are not a valid field.
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>> {
        if self.at >= self.message.len() {
            return Ok(None);
        }
        let start = self.at;
        let (number, wire_type) = split_tag(self.number()?)?;
        let value = match wire_type {
            VARINT => Value::Varint(self.number()?),
            FIXED64 => self.take(8).map(|_| Value::Fixed)?,
            BYTES => {
                let len = self.number()?;
                Value::Bytes(self.take(len)?)
            }
            FIXED32 => self.take(4).map(|_| Value::Fixed)?,
            // The apiserver never writes groups.
            _ => return Err(CodecError::Invalid("wire type")),
        };
        Ok(Some(Field { number, value, start, end: self.at }))
    }
}

// === impl Value ===

impl<'a> Value<'a> {
    pub(super) fn bytes(self, name: &'static str) -> Result<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed => Err(CodecError::Invalid(name)),
        }
    }

    pub(super) fn text(self, name: &'static str) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(name)?).map_err(|_| CodecError::NotUtf8)
    }

    /// A string in which a user may have put any bytes.
    pub(super) fn lossy(self, name: &'static str) -> Result<Cow<'a, str>> {
        self.bytes(name).map(lossy)
    }

    pub(super) fn varint(self, name: &'static str) -> Result<u64> {
        match self {
            Self::Varint(value) => Ok(value),
            Self::Bytes(_) | Self::Fixed => Err(CodecError::Invalid(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varints_are_read_as_written(value: u64, rest: Vec<u8>) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            for cut in 0..bytes.len() {
                prop_assert_eq!(varint(&bytes[..cut]), Ok(None));
            }
            bytes.extend(rest);
            prop_assert_eq!(varint(&bytes), Ok(Some((value, varint_len(value)))));
        }
    }

    #[test]
    fn what_is_no_field() {
        for (bytes, error) in [
            (&[0xff; 11][..], CodecError::Invalid("varint")),
            (&[0x0a, 0x05, 1][..], CodecError::Truncated),
            (&[0x0a][..], CodecError::Truncated),
            (&[0x09, 1, 2, 3][..], CodecError::Truncated),
            (&[0x0b][..], CodecError::Invalid("wire type")),
            (&[0x02, 0][..], CodecError::Invalid("field number")),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..], CodecError::Truncated),
        ] {
            assert_eq!(Fields::new(bytes).next(), Err(error), "{bytes:x?}");
        }
    }
}
