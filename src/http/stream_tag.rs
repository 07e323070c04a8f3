//! Tells a handler the identifier of its stream. The HTTP library does not, so a header field of ours is appended to the
//! header block of each request before the library reads it.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderName};
use rand::Rng as _;

/// The name of the field. It is different in each process, so that a field of a client is never mistaken for it.
static NAME: LazyLock<HeaderName> = LazyLock::new(|| {
    let name = format!("informerd-stream-{:016x}", rand::rng().random::<u64>());
    HeaderName::from_bytes(name.as_bytes()).unwrap_or(HeaderName::from_static("informerd-stream"))
});

/// The most by which the field makes a list of header fields larger (RFC 9113, section 6.5.2).
pub(super) const SIZE: u32 = 33 + 10 + 32;

/// A literal field with a new name that is never indexed (RFC 7541, section 6.2.3), so the field does not change the
/// table of the connection.
const NEVER_INDEXED: u8 = 0x10;

/// The field for a stream, as it is appended to a header block.
pub(super) fn field(stream: u32) -> Vec<u8> {
    let (name, value) = (NAME.as_str(), stream.to_string());
    let mut field = vec![NEVER_INDEXED];
    for text in [name, &value] {
        // Both are shorter than 127 bytes, so their length is one byte.
        field.extend(u8::try_from(text.len()));
        field.extend_from_slice(text.as_bytes());
    }
    field
}

/// Adds the field as the library reads it.
#[cfg(test)]
pub(super) fn put(headers: &mut HeaderMap, stream: u32) {
    headers.insert(&*NAME, stream.into());
}

/// Removes the field. Returns `None` if there was none, and the stream is unknown.
pub(super) fn take(headers: &mut HeaderMap) -> Option<u32> {
    headers.remove(&*NAME)?.to_str().ok()?.parse().ok()
}

/// Whether a header block ends with a complete field. Otherwise a field that follows would become a part of another one.
pub(super) fn is_complete(mut block: &[u8]) -> bool {
    while let Some(&first) = block.first() {
        let (prefix, strings) = match first {
            0x80.. => (7, 0),
            0x40.. => (6, strings(first & 0x3f)),
            // A new size of the table.
            0x20.. => (5, 0),
            _ => (4, strings(first & 0x0f)),
        };
        let Some((_, rest)) = integer(block, prefix) else { return false };
        block = rest;
        for _ in 0..strings {
            let Some((len, rest)) = integer(block, 7) else { return false };
            let Some(rest) = rest.get(len..) else { return false };
            block = rest;
        }
    }
    true
}

/// The strings of a literal field: its value, and its name unless the name is in the table.
fn strings(index: u8) -> usize {
    if index == 0 { 2 } else { 1 }
}

/// An integer whose first byte has `prefix` bits (RFC 7541, section 5.1), and what follows it.
fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let most = (1_usize << prefix) - 1;
    let (&first, mut rest) = bytes.split_first()?;
    let mut value = usize::from(first) & most;
    if value < most {
        return Some((value, rest));
    }
    // No header block has a length or an index beyond this.
    for shift in [0, 7, 14, 21] {
        let (&byte, next) = rest.split_first()?;
        rest = next;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_complete_and_ends_a_block() {
        assert!(is_complete(&field(MOST)));
        let mut block = vec![0x82, 0x86, 0x84, 0x41, 0x03, b'a', b'.', b'b', 0x3f, 0xe1, 0x1f];
        assert!(is_complete(&block));
        block.extend(field(5));
        assert!(is_complete(&block));
    }

    const MOST: u32 = u32::MAX >> 1;

    #[test]
    fn a_block_that_ends_within_a_field_is_not_complete() {
        let long = [&[0x00, 0x01, b'a', 0x7f, 0x81, 0x01][..], &[b'x'; 256]].concat();
        let whole = [&[0x82][..], &long, &[0x40, 0x01, b'b', 0x02, b'1', b'2', 0xff, 0x05]].concat();
        let ends = [0, 1, 1 + long.len(), whole.len() - 2, whole.len()];
        for end in 0..=whole.len() {
            assert_eq!(is_complete(&whole[..end]), ends.contains(&end), "{end}");
        }
        assert!(!is_complete(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), "an integer without end");
    }

    #[test]
    fn the_size_of_the_field_is_known() {
        let strings = field(MOST).len() - 3;
        assert_eq!(strings + 32, SIZE as usize);
    }
}
