//! Writes `metadata` in the form of PartialObjectMetadata.
//!
//! The apiserver writes it from the ObjectMeta struct. Built-in objects are written from the same struct, so their
//! metadata is a slice of the stored bytes. Custom resources are written from maps, sorted by key. For them, this
//! module puts the raw members into the order of the struct, and omits what the struct would omit.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Slices;
use informerd_meta::{Damaged, Object, ResourceVersion};

use super::annotations::without;
use super::form::{Form, Style};
use super::scan::{Result, Scanner};

/// The members of a struct in the order in which Go writes them.
type Order = [(&'static str, Omit)];

/// When the encoder of the struct omits a member. Null is always omitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Omit {
    /// Omitted also when the value is "", 0, {} or [].
    Empty,
    Null,
}

use Omit::{Empty, Null};

const OBJECT_META: &Order = &[
    ("name", Empty),
    ("generateName", Empty),
    ("namespace", Empty),
    ("selfLink", Empty),
    ("uid", Empty),
    ("resourceVersion", Empty),
    ("generation", Empty),
    ("creationTimestamp", Null),
    ("deletionTimestamp", Null),
    ("deletionGracePeriodSeconds", Null),
    ("labels", Empty),
    ("annotations", Empty),
    ("ownerReferences", Empty),
    ("finalizers", Empty),
    ("managedFields", Empty),
];

const OWNER_REFERENCE: &Order = &[
    ("apiVersion", Null),
    ("kind", Null),
    ("name", Null),
    ("uid", Null),
    ("controller", Null),
    ("blockOwnerDeletion", Null),
];

const MANAGED_FIELDS_ENTRY: &Order = &[
    ("manager", Empty),
    ("operation", Empty),
    ("apiVersion", Empty),
    ("time", Null),
    ("fieldsType", Empty),
    ("fieldsV1", Null),
    ("subresource", Empty),
];

/// The size limit in bytes of objects whose metadata is cached. A cache entry keeps the whole object alive.
const REMEMBERED: usize = 32 << 10;

/// The position of a member in ObjectMeta. Members that ObjectMeta does not have come last.
pub(super) fn rank(name: &str) -> usize {
    OBJECT_META.iter().position(|(known, _)| *known == name).unwrap_or(OBJECT_META.len())
}

/// Writes the metadata of a partial object. An event has many watchers, so the form caches its reordered metadata.
///
/// # Errors
/// The bytes of the object are damaged.
pub(super) fn partial_metadata(
    form: &Form,
    object: &Object,
    rv_override: Option<ResourceVersion>,
    is_event: bool,
) -> std::result::Result<Slices, Damaged> {
    let raw = object.raw()?;
    let metadata = raw.metadata();
    if form.style_of(&raw.item()) == Style::Inline {
        let rv = rv_override.unwrap_or(object.rv);
        let order = || object_meta(&metadata, rv).ok().map(Bytes::from);
        let is_cached = is_event && object.item_len() <= REMEMBERED;
        let ordered = if is_cached { form.ordered.get_or_insert(&metadata, rv, order) } else { order() };
        // The metadata was parsed before, so this succeeds. If it fails, the members only stay in their stored order.
        if let Some(ordered) = ordered {
            return Ok(Slices::from(ordered));
        }
    }
    let (range, digits) = (raw.metadata_range(), raw.rv_range());
    let mut changes: SmallVec<[(Range<usize>, Bytes); 2]> = SmallVec::new();
    if let Some(rv) = rv_override {
        changes.push((digits, Bytes::from(rv.to_string())));
    }
    if !form.unshown.is_empty()
        && let Ok(Some((part, new))) = without(&metadata, form.unshown)
    {
        changes.push((range.start + part.start..range.start + part.end, new.into()));
        changes.sort_unstable_by_key(|(part, _)| part.start);
    }
    let (mut out, mut at) = (Slices::new(), range.start);
    for (part, new) in changes {
        out.push(raw.slice(at..part.start));
        out.push(new);
        at = part.end;
    }
    out.push(raw.slice(at..range.end));
    Ok(out)
}

/// Writes ObjectMeta in the order of the struct, with this resourceVersion.
fn object_meta(metadata: &[u8], rv: ResourceVersion) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(metadata.len() + 16);
    ordered(&mut Scanner::new(metadata), OBJECT_META, &mut out, |name, value, out| match name {
        "resourceVersion" => {
            out.extend_from_slice(format!("\"{rv}\"").as_bytes());
            Ok(())
        }
        "ownerReferences" => elements(value, OWNER_REFERENCE, out),
        "managedFields" => elements(value, MANAGED_FIELDS_ENTRY, out),
        _ => {
            out.extend_from_slice(value);
            Ok(())
        }
    })?;
    Ok(out)
}

/// Writes an array of structs.
fn elements(array: &[u8], order: &Order, out: &mut Vec<u8>) -> Result<()> {
    out.push(b'[');
    Scanner::new(array).array(|scanner, index| {
        if index > 0 {
            out.push(b',');
        }
        ordered(scanner, order, out, |_, value, out| {
            out.extend_from_slice(value);
            Ok(())
        })
    })?;
    out.push(b']');
    Ok(())
}

/// Writes the members of the object at the scanner's position in this order. `write` writes the values.
fn ordered<'a>(
    scanner: &mut Scanner<'a>,
    order: &Order,
    out: &mut Vec<u8>,
    mut write: impl FnMut(&'static str, &'a [u8], &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let mut found: [&[u8]; OBJECT_META.len()] = [b"null"; OBJECT_META.len()];
    scanner.object(|scanner, key| {
        let start = scanner.position();
        scanner.skip_value()?;
        let place = order.iter().position(|(name, _)| key.is(name));
        if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
            *slot = scanner.since(start);
        }
        Ok(())
    })?;
    let mut open = b'{';
    for ((name, omit), value) in order.iter().zip(found) {
        let empty = matches!(value, b"\"\"" | b"0" | b"{}" | b"[]");
        if value == b"null" || empty && *omit == Empty {
            continue;
        }
        out.push(open);
        open = b',';
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        write(name, value, out)?;
    }
    if open == b'{' {
        out.push(open);
    }
    out.push(b'}');
    Ok(())
}
