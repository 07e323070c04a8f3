//! Writes GET bodies, lists and watch frames around the messages of objects.

use bytes::Bytes;

use crate::{ListMetaOut, Shape, Slices};
use informerd_meta::{Damaged, EventType, Object, Raw, ResourceVersion};

use super::envelope::{Lead, TAIL};
use super::form::Form;
use super::item::with_resource_version;
use super::metadata::from_json;
use super::wire::{field_len, put_bytes, put_header, put_number};

/// The field number of `raw` in an envelope and of `items` in a list. An object is stored with this tag and its
/// length in front, so the same bytes fit in both.
const RAW: u8 = 2;

/// Writes an object in its envelope, as the body of a GET. `rv_override` replaces the object's resourceVersion.
///
/// # Errors
/// The bytes of the object are damaged.
pub fn object_bytes(
    form: &Form,
    object: &Object,
    rv_override: Option<ResourceVersion>,
    shape: Shape,
) -> Result<Slices, Damaged> {
    let mut out = Slices::from(form.object.of(shape).bytes());
    Message::new(form, object, object.raw()?, rv_override, shape).append(Vec::new(), RAW, &mut out);
    out.push_static(TAIL);
    Ok(out)
}

/// The length of an item as [`list_item`] writes it.
///
/// # Errors
/// The bytes of the object are damaged.
pub fn item_len(form: &Form, object: &Object, shape: Shape) -> Result<u64, Damaged> {
    match shape {
        Shape::Full => Ok(object.framed_len() as u64),
        // They are read again when the item is written.
        _ => Ok(field_len(Message::new(form, object, object.raw_for_upkeep()?, None, shape).len)),
    }
}

/// Writes everything before the first item. The envelope states the length of its content, so `meta.items_len` must
/// be the total length of all items.
pub fn list_head(form: &Form, shape: Shape, meta: &ListMetaOut) -> Bytes {
    let list_meta = list_meta(meta);
    let lead = form.list.of(shape).bytes();
    let mut out = Vec::with_capacity(lead.len() + list_meta.len() + 24);
    out.extend_from_slice(&lead);
    put_header(&mut out, RAW, field_len(list_meta.len() as u64) + meta.items_len);
    if metadata_first(shape) {
        put_bytes(&mut out, 1, &list_meta);
    }
    out.into()
}

/// One item.
///
/// # Errors
/// The bytes of the object are damaged.
pub fn list_item(form: &Form, object: &Object, shape: Shape) -> Result<Slices, Damaged> {
    let mut out = Slices::new();
    let number = if metadata_first(shape) { RAW } else { 1 };
    Message::new(form, object, object.raw()?, None, shape).append(Vec::new(), number, &mut out);
    Ok(out)
}

/// Writes everything after the last item.
pub fn list_tail(shape: Shape, meta: &ListMetaOut) -> Bytes {
    if metadata_first(shape) {
        return Bytes::from_static(TAIL);
    }
    let mut out = Vec::new();
    put_bytes(&mut out, 2, &list_meta(meta));
    out.extend_from_slice(TAIL);
    out.into()
}

/// Writes one event of a watch. `rv_override` replaces the resourceVersion of the object, as
/// [`crate::Form::event_frame`] explains.
///
/// # Errors
/// The bytes of the object are damaged.
pub fn event_frame(
    form: &Form,
    kind: EventType,
    object: &Object,
    rv_override: Option<ResourceVersion>,
    shape: Shape,
) -> Result<Slices, Damaged> {
    let message = Message::new(form, object, object.raw()?, rv_override, shape);
    let head = frame_head(kind.as_str(), form.object.of(shape), message.len);
    let mut out = Slices::new();
    message.append(head, RAW, &mut out);
    out.push_static(TAIL);
    Ok(out)
}

/// Writes a watch frame around an encoded message.
pub(super) fn frame(kind: &str, lead: &Lead, message: &[u8]) -> Bytes {
    let mut out = frame_head(kind, lead, message.len() as u64);
    put_bytes(&mut out, RAW, message);
    out.extend_from_slice(TAIL);
    out.into()
}

/// Writes the start of a watch frame that contains an envelope with a message of `len` bytes: everything before the
/// field `raw`.
fn frame_head(kind: &str, lead: &Lead, len: u64) -> Vec<u8> {
    let envelope = lead.envelope_len(len);
    let event = field_len(kind.len() as u64) + field_len(field_len(envelope));
    let mut out = Vec::with_capacity(96);
    // Objects are far smaller than the largest length: etcd rejects requests over 1.5 MiB.
    out.extend_from_slice(&u32::try_from(event).unwrap_or(u32::MAX).to_be_bytes());
    put_bytes(&mut out, 1, kind.as_bytes());
    put_header(&mut out, 2, field_len(envelope));
    put_header(&mut out, 1, envelope);
    out.extend_from_slice(&lead.bytes());
    out
}

/// An object's message, which is to be put into an envelope or a list.
struct Message {
    /// What replaces the stored beginning, up to the end of the metadata.
    beginning: Vec<u8>,
    rest: Bytes,
    /// Whether `rest` is the whole message with its tag and length, as stored.
    is_framed: bool,
    len: u64,
}

// === impl Message ===

impl Message {
    fn new(form: &Form, object: &Object, raw: Raw, rv_override: Option<ResourceVersion>, shape: Shape) -> Self {
        let (full, metadata_end) = (shape == Shape::Full, raw.metadata_range().end);
        let mut beginning = if form.of_json {
            Some(from_json(object, &raw, rv_override))
        } else {
            rv_override.map(|rv| with_resource_version(&raw, rv))
        };
        if !full && !form.of_json && !form.unshown.is_nothing() {
            let stored = raw.slice(0..metadata_end);
            let whole = beginning.as_deref().unwrap_or(&stored);
            let mut shown = Vec::with_capacity(whole.len());
            // Metadata with an annotation that cannot be parsed is shown whole.
            if form.unshown.object(whole, &mut shown).is_ok() {
                beginning = Some(shown);
            }
        }
        let len = if full { raw.len() } else { metadata_end };
        match beginning {
            None if full => Self { beginning: Vec::new(), rest: raw.framed(), is_framed: true, len: len as u64 },
            None => Self { beginning: Vec::new(), rest: raw.slice(0..len), is_framed: false, len: len as u64 },
            Some(beginning) => {
                let rest = raw.slice(metadata_end..len);
                let len = (beginning.len() + rest.len()) as u64;
                Self { beginning, rest, is_framed: false, len }
            }
        }
    }

    /// Appends `head`, and the message as the field with this number.
    fn append(mut self, mut head: Vec<u8>, number: u8, out: &mut Slices) {
        if !self.is_framed {
            put_header(&mut head, number, self.len);
            head.append(&mut self.beginning);
        }
        out.push(head.into());
        out.push(self.rest);
    }
}

/// Lists of v1beta1 have the items first.
fn metadata_first(shape: Shape) -> bool {
    shape != Shape::PartialObjectMetadataV1beta1
}

fn list_meta(meta: &ListMetaOut) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    put_bytes(&mut out, 1, b"");
    put_bytes(&mut out, 2, meta.rv.to_string().as_bytes());
    put_bytes(&mut out, 3, meta.continue_token.as_deref().unwrap_or_default().as_bytes());
    if let Some(remaining) = meta.remaining {
        put_number(&mut out, 4, remaining);
    }
    if let Some(selector) = &meta.shard {
        let mut info = Vec::with_capacity(selector.len() + 4);
        put_bytes(&mut info, 1, selector.as_bytes());
        put_bytes(&mut out, 5, &info);
    }
    out
}
