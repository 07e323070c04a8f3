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

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::super::oracle::{OwnerReference, metadata, text};
    use super::*;

    #[test]
    fn any_owner_counts() {
        let owner = |uid: &str| OwnerReference { kind: text("X"), uid: text(uid) };
        let mut metadata = metadata("a", "p", 1, &[]);
        assert_eq!(has_owner(&metadata.encode_to_vec(), &mut |_| true), Ok(false));
        metadata.owner_references = vec![owner("one"), owner("two")];
        let bytes = metadata.encode_to_vec();
        for (asked, found) in [("one", true), ("two", true), ("three", false), ("X", false)] {
            assert_eq!(has_owner(&bytes, &mut |uid| uid == asked), Ok(found), "{asked}");
        }
        assert!(has_owner(&bytes[..bytes.len() - 1], &mut |_| false).is_err());
    }
}
