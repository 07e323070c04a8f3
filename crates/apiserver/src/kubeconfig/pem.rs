//! PEM as Go's `encoding/pem` takes it: text around the blocks is skipped, and so is a block that is malformed.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};

/// Standard base64 with padding. As Go, it takes any bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

pub(super) struct Block {
    pub(super) label: String,
    /// It has headers such as `DEK-Info`, which say that its content is encrypted.
    pub(super) has_headers: bool,
    pub(super) der: Vec<u8>,
}

/// All blocks of a text, in their order.
pub(super) fn blocks(pem: &[u8]) -> Vec<Block> {
    let text = String::from_utf8_lossy(pem);
    let mut lines = text.lines().map(str::trim_end).peekable();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let (end, mut body, mut has_headers) = (format!("-----END {label}-----"), String::new(), false);
        let mut is_whole = false;
        while let Some(next) = lines.next_if(|next| !next.starts_with("-----BEGIN ")) {
            if next == end {
                is_whole = true;
                break;
            }
            if next.contains(':') {
                has_headers = true;
            } else {
                body.extend(next.split_whitespace());
            }
        }
        if let (true, Ok(der)) = (is_whole, BASE64.decode(body)) {
            blocks.push(Block { label: label.to_owned(), has_headers, der });
        }
    }
    blocks
}

/// The certificates of a text, in DER.
pub(super) fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    let is_certificate = |block: &Block| block.label == "CERTIFICATE" && !block.has_headers;
    blocks(pem).into_iter().filter(is_certificate).map(|block| block.der).collect()
}

/// The content of a `*-data` field: standard base64, which may have line breaks.
///
/// # Errors
/// It is no base64.
pub(super) fn data(field: &str) -> Result<Vec<u8>, base64::DecodeError> {
    BASE64.decode(unbroken(field))
}

/// Base64 without line breaks.
pub(super) fn unbroken(field: &str) -> String {
    field.replace(['\r', '\n'], "")
}

/// What a field says: the content of its `*-data`, or else that of its file. `None` if both are empty.
///
/// # Errors
/// The data is no base64, or the file cannot be read.
pub(super) fn data_or_file(field: &str, data: &str, file: &str) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        ("", "") => Ok(None),
        ("", file) => std::fs::read(file).map(Some).map_err(|error| format!("{field}: {file}: {error}")),
        (data, _) => self::data(data).map(Some).map_err(|error| format!("{field}-data: {error}")),
    }
}

/// Base64 as it is written.
pub(super) fn encode(bytes: &[u8]) -> String {
    general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_any_text() {
        let text = b"subject=CN = x\n-----BEGIN A-----\nQUFB\n QUE=\n-----END A-----\r\n-----BEGIN B-----\nQUFB\n\
            -----BEGIN C KEY-----\r\nProc-Type: 4,ENCRYPTED\r\n\r\nQUFB\r\n-----END C KEY-----\n-----BEGIN D-----\n!\n-----END D-----";
        let found: Vec<_> = blocks(text).into_iter().map(|it| (it.label, it.has_headers, it.der)).collect();
        assert_eq!(found, [("A".into(), false, b"AAAAA".to_vec()), ("C KEY".into(), true, b"AAA".to_vec())]);
    }

    #[test]
    fn data_may_have_line_breaks_and_no_spaces() {
        assert_eq!(data("QUFB\r\nQUE=\n").unwrap(), b"AAAAA");
        assert_eq!(data("QUF=").unwrap(), b"AA", "with bits after the last byte");
        assert!(data("QUFB QUE=").is_err() && data("QUE").is_err());
    }
}
