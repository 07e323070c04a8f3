//! The envelope around every object outside of lists: `k8s\0` and a `runtime.Unknown` with the type and the bytes.

use bytes::Bytes;

use crate::CodecError;
use crate::error::once;

use super::wire::{Fields, Result, field_len, put_bytes};

/// The prefix of every body, and of every object inside a watch event.
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// The end of every envelope: contentEncoding and contentType. They are always empty and always written.
pub(super) const TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// An object without its envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub message: &'a [u8],
}

/// `k8s\0` and the field with the type. It is built once for each type and shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lead(Bytes);

// === impl Envelope ===

impl<'a> Envelope<'a> {
    /// Decodes an envelope.
    ///
    /// # Errors
    /// When the bytes are not an envelope, or when it contains its object in another encoding.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self> {
        let unknown = bytes.strip_prefix(MAGIC).ok_or(CodecError::Missing("k8s prefix"))?;
        let (mut found, mut message) = (Self::default(), None);
        let mut fields = Fields::new(unknown);
        while let Some(field) = fields.next()? {
            match field.number {
                1 => (found.api_version, found.kind) = type_meta(field.value.bytes("typeMeta")?)?,
                2 => once(&mut message, field.value.bytes("raw")?, "raw")?,
                3 | 4 => plain(field.value.bytes("contentType")?)?,
                _ => {}
            }
        }
        // A message of zero values is empty, so its field may be missing.
        found.message = message.unwrap_or_default();
        Ok(found)
    }
}

/// Reads apiVersion and kind.
pub(super) fn type_meta(message: &[u8]) -> Result<(&str, &str)> {
    let (mut api_version, mut kind) = ("", "");
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => api_version = field.value.text("apiVersion")?,
            2 => kind = field.value.text("kind")?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

/// Checks contentEncoding and contentType. They must be empty, which means that the object is a protobuf message.
pub(super) fn plain(content: &[u8]) -> Result<()> {
    if content.is_empty() { Ok(()) } else { Err(CodecError::Invalid("contentType")) }
}

// === impl Lead ===

impl Lead {
    pub(super) fn new(api_version: &str, kind: &str) -> Self {
        let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
        put_bytes(&mut type_meta, 1, api_version.as_bytes());
        put_bytes(&mut type_meta, 2, kind.as_bytes());
        let mut out = Vec::with_capacity(type_meta.len() + 8);
        out.extend_from_slice(MAGIC);
        put_bytes(&mut out, 1, &type_meta);
        Self(out.into())
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The length of the envelope around a message of `len` bytes.
    pub(super) fn envelope_len(&self, len: u64) -> u64 {
        self.0.len() as u64 + field_len(len) + TAIL.len() as u64
    }

    /// Writes the envelope around an encoded message.
    pub(super) fn around(&self, message: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() + message.len() + 16);
        out.extend_from_slice(&self.0);
        put_bytes(&mut out, 2, message);
        out.extend_from_slice(TAIL);
        out
    }
}
