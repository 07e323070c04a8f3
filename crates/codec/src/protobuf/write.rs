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
    let lead = form.object_lead(shape).bytes();
    let message = Message::new(form, object, rv_override, shape)?;
    if message.is_kept() {
        let mut out = Slices::from(lead);
        message.append(Vec::new(), &mut out);
        return Ok(out);
    }
    let mut out = Slices::new();
    message.append(lead.to_vec(), &mut out);
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
        _ => Ok(field_len(metadata(form, object, &object.raw_for_upkeep()?).len() as u64)),
    }
}

/// Writes everything before the first item. The envelope states the length of its content, so `meta.items_len` must
/// be the total length of all items.
pub fn list_head(form: &Form, shape: Shape, meta: &ListMetaOut) -> Bytes {
    let list_meta = list_meta(meta);
    let lead = form.list_lead(shape).bytes();
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
    let raw = object.raw()?;
    if shape == Shape::Full {
        return Ok(Slices::from(raw.framed()));
    }
    let metadata = metadata(form, object, &raw);
    let mut header = Vec::with_capacity(11);
    put_header(&mut header, if metadata_first(shape) { 2 } else { 1 }, metadata.len() as u64);
    let mut out = Slices::from(Bytes::from(header));
    out.push(metadata);
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

/// Writes one event of a watch. `rv_override` replaces the resourceVersion of the object. It is needed when an object
/// stops matching a watcher's selector: the watcher gets the last state that matched, with the resourceVersion of the
/// change.
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
    let message = Message::new(form, object, rv_override, shape)?;
    let head = frame_head(kind.as_str(), form.object_lead(shape), message.len as u64);
    let mut out = Slices::new();
    message.append(head, &mut out);
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

/// An object's message that is to be put into an envelope.
struct Message {
    raw: Raw,
    shape: Shape,
    /// The bytes that replace its beginning up to the end of the metadata.
    beginning: Option<Vec<u8>>,
    len: usize,
}

// === impl Message ===

impl Message {
    fn new(form: &Form, object: &Object, rv_override: Option<ResourceVersion>, shape: Shape) -> Result<Self, Damaged> {
        let (raw, full) = (object.raw()?, shape == Shape::Full);
        if form.is_of_json() {
            let message = from_json(object, &raw, rv_override);
            return Ok(Self { raw, shape, len: message.len(), beginning: Some(message) });
        }
        if !full && let Some(metadata) = shown(form, &raw, rv_override) {
            return Ok(Self { raw, shape, len: metadata.len(), beginning: Some(metadata) });
        }
        let Some(rv) = rv_override else {
            let len = if full { raw.len() } else { raw.metadata_range().end };
            return Ok(Self { raw, shape, beginning: None, len });
        };
        let (beginning, whole) = with_resource_version(&raw, rv);
        let len = if full { whole } else { beginning.len() };
        Ok(Self { raw, shape, beginning: Some(beginning), len })
    }

    /// Whether it is written as stored, including its tag and length.
    fn is_kept(&self) -> bool {
        self.beginning.is_none() && self.shape == Shape::Full
    }

    /// Appends `head`, then the message as the field `raw` of an envelope, then the end of the envelope.
    fn append(self, mut head: Vec<u8>, out: &mut Slices) {
        let is_kept = self.is_kept();
        let raw = self.raw;
        if is_kept {
            out.push(head.into());
            out.push(raw.framed());
        } else {
            put_header(&mut head, RAW, self.len as u64);
            match self.beginning {
                Some(mut beginning) => {
                    head.append(&mut beginning);
                    out.push(head.into());
                    if self.shape == Shape::Full {
                        out.push(raw.slice(raw.metadata_range().end..raw.len()));
                    }
                }
                None => {
                    out.push(head.into());
                    out.push(raw.slice(0..self.len));
                }
            }
        }
        out.push_static(TAIL);
    }
}

/// The message of a PartialObjectMetadata: the metadata field of the object.
fn metadata(form: &Form, object: &Object, raw: &Raw) -> Bytes {
    if form.is_of_json() {
        return from_json(object, raw, None).into();
    }
    if let Some(metadata) = shown(form, raw, None) {
        return metadata.into();
    }
    raw.slice(0..raw.metadata_range().end)
}

/// The metadata without the parts that partial shapes omit; `None` if nothing has to be omitted.
fn shown(form: &Form, raw: &Raw, rv_override: Option<ResourceVersion>) -> Option<Vec<u8>> {
    if form.unshown.is_nothing() {
        return None;
    }
    let whole = match rv_override {
        Some(rv) => with_resource_version(raw, rv).0.into(),
        None => raw.slice(0..raw.metadata_range().end),
    };
    let mut out = Vec::with_capacity(whole.len());
    // The metadata was parsed before, so this succeeds.
    form.unshown.object(&whole, &mut out).ok().map(|()| out)
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
