//! Strings that are not UTF-8. A string of protobuf may have any bytes: the apiserver accepts such values for many
//! fields, and sends them unchanged in protobuf.

use std::borrow::Cow;

use informerd_meta::ObjectKey;

use super::CodecError;

/// A namespace has up to 63 characters, and a name up to 253.
const MOST_OF_A_NAME: usize = 320;

/// The text as Go writes it in JSON: each byte that belongs to no character becomes U+FFFD.
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(out)
}

/// The key of an object.
///
/// # Errors
/// The name is empty, or one of both has a slash or U+FFFD. In JSON, U+FFFD may stand for any byte, so two objects
/// could have the same key, and no name in a request would be that of the object.
pub(super) fn object_key(namespace: &str, name: &str) -> Result<ObjectKey, CodecError> {
    let is_ambiguous = |text: &str| text.contains(['/', char::REPLACEMENT_CHARACTER]);
    if name.is_empty() || is_ambiguous(name) {
        return Err(CodecError::Invalid("metadata.name"));
    }
    if is_ambiguous(namespace) {
        return Err(CodecError::Invalid("metadata.namespace"));
    }
    Ok(ObjectKey::new(namespace, name))
}

/// An object that cannot be decoded, as messages name it; `None` without a name.
pub(crate) fn odd_name(namespace: &str, name: &str) -> Option<String> {
    let separator = if namespace.is_empty() { "" } else { "/" };
    let whole = format!("{namespace}{separator}{name}");
    // The apiserver takes no longer names. Whatever else this is need not fill the log.
    (!name.is_empty()).then(|| whole.chars().take(MOST_OF_A_NAME).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_that_is_no_character_becomes_one() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            ("é😀".as_bytes(), "é😀"),
            (b"a\xffb", "a\u{fffd}b"),
            // The beginning of a character of three bytes, and a surrogate.
            (b"\xe2\x82x", "\u{fffd}\u{fffd}x"),
            (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(lossy(bytes), text, "{bytes:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_where_it_is_told() {
        let told = [318, 319].map(|len| odd_name("n", &"x".repeat(len)).unwrap());
        assert_eq!(told, [format!("n/{}", "x".repeat(MOST_OF_A_NAME - 2)), told[0].clone()]);
    }
}
