//! The owner references of an object.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owned<'a> {
    #[serde(borrow, default)]
    owner_references: Vec<Owner<'a>>,
}

#[derive(Deserialize)]
struct Owner<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

/// Most objects have no matching owner. A search of the raw bytes excludes most of them without parsing.
pub fn has_owner(metadata: &[u8], asked: &mut dyn FnMut(&str) -> bool) -> bool {
    memmem::find(metadata, b"\"ownerReferences\"").is_some()
        && serde_json::from_slice::<Owned<'_>>(metadata)
            .is_ok_and(|owned| owned.owner_references.iter().any(|owner| asked(&owner.uid)))
}
