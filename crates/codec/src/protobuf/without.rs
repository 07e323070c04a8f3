//! Removes parts of the metadata of objects. All other bytes stay unchanged.

use super::envelope::MAGIC;
use super::item::entry;
use super::wire::{Field, Fields, Result, Value, put_header};
use crate::CodecError;

/// The parts of the metadata to remove. Parts outside the metadata cannot be named without the schema of the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Without {
    pub managed_fields: bool,
    /// The names of annotations to remove.
    pub annotations: &'static [&'static str],
}

/// Field numbers: `raw` in an envelope, the metadata in an object, and parts of the metadata.
const RAW: u8 = 2;
const METADATA: u8 = 1;
const ANNOTATIONS: u32 = 12;
const MANAGED_FIELDS: u32 = 17;

// === impl Without ===

impl Without {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns an object in its envelope, without these parts.
    ///
    /// # Errors
    /// When the bytes are not an object in an envelope.
    pub fn apply(&self, body: &[u8]) -> Result<Vec<u8>> {
        let unknown = body.strip_prefix(MAGIC).ok_or(CodecError::Missing("k8s prefix"))?;
        let mut out = Vec::with_capacity(body.len());
        out.extend_from_slice(MAGIC);
        replace(unknown, RAW, &mut out, |object, out| self.object(object, out))?;
        Ok(out)
    }

    /// Writes an object's message, or its beginning up to the end of the metadata, without these parts.
    pub(super) fn object(&self, message: &[u8], out: &mut Vec<u8>) -> Result<()> {
        replace(message, METADATA, out, |metadata, out| self.metadata(metadata, out))
    }

    fn metadata(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut fields = Fields::new(metadata);
        while let Some(field) = fields.next()? {
            if !self.names(&field)? {
                out.extend_from_slice(metadata.get(field.start..field.end).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn names(&self, field: &Field<'_>) -> Result<bool> {
        match field.number {
            MANAGED_FIELDS => Ok(self.managed_fields),
            ANNOTATIONS if !self.annotations.is_empty() => {
                let (key, _) = entry(field.value.bytes("metadata.annotations")?)?;
                Ok(self.annotations.iter().any(|name| name.as_bytes() == key))
            }
            _ => Ok(false),
        }
    }
}

/// Copies a message. `change` rewrites the messages in the field with this number.
fn replace(
    message: &[u8],
    number: u8,
    out: &mut Vec<u8>,
    mut change: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        match field.value {
            Value::Bytes(inner) if field.number == u32::from(number) => {
                let mut changed = Vec::with_capacity(inner.len());
                change(inner, &mut changed)?;
                put_header(out, number, changed.len() as u64);
                out.append(&mut changed);
            }
            _ => out.extend_from_slice(message.get(field.start..field.end).unwrap_or_default()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::odd_tests::{of, wrapped};
    use super::*;

    fn annotated(annotations: &[&str], managed: usize) -> Vec<u8> {
        let (note, entry) = ("x".repeat(200), of(&[(1, b"kube")]));
        let annotation = |name: &&str| of(&[(12, &of(&[(1, name.as_bytes()), (2, note.as_bytes())]))]);
        let mut metadata = of(&[(1, b"p"), (6, b"7")]);
        metadata.extend(annotations.iter().flat_map(annotation));
        // Tag and length of field 17.
        (0..managed).for_each(|_| metadata.extend([&[0x8a, 1, 6][..], &entry].concat()));
        wrapped("Pod", &of(&[(1, &metadata), (2, b"spec")]))
    }

    #[test]
    fn only_what_is_named_goes() {
        let whole = annotated(&["a", "b"], 2);
        let without = |managed_fields, annotations| Without { managed_fields, annotations }.apply(&whole).unwrap();
        assert_eq!(without(false, &[]), whole);
        assert_eq!(without(true, &[]), annotated(&["a", "b"], 0));
        assert_eq!(without(false, &["b"]), annotated(&["a"], 2));
        assert_eq!(without(true, &["c"]), annotated(&["a", "b"], 0));
        assert_eq!(
            Without { managed_fields: true, annotations: &["a"] }.apply(&annotated(&["a"], 1)).unwrap(),
            annotated(&[], 0)
        );
    }

    #[test]
    fn what_is_no_envelope_is_refused() {
        let parts = Without { managed_fields: true, annotations: &[] };
        assert!(parts.apply(b"{}").is_err());
        let whole = annotated(&[], 1);
        assert!(parts.apply(&whole[..whole.len() - 1]).is_err());
        assert!(parts.apply(&wrapped("Pod", &[0x0a, 9])).is_err());
    }
}
