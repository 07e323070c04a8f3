//! The owner references of an object.

use super::wire::{Fields, Result};

/// Field numbers of ObjectMeta and of OwnerReference.
const OWNER_REFERENCES: u32 = 13;
const UID: u32 = 4;

/// # Errors
/// When the bytes are not an ObjectMeta.
pub fn has_owner(metadata: &[u8], asked: &mut dyn FnMut(&str) -> bool) -> Result<bool> {
    let mut fields = Fields::new(metadata);
    while let Some(field) = fields.next()? {
        if field.number != OWNER_REFERENCES {
            continue;
        }
        let mut owner = Fields::new(field.value.bytes("metadata.ownerReferences")?);
        while let Some(field) = owner.next()? {
            if field.number == UID && asked(&field.value.lossy("metadata.ownerReferences.uid")?) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
