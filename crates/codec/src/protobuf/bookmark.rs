//! Bookmarks: the object that upstream sent for this type, with another resourceVersion.

use bytes::Bytes;

use crate::{CodecError, INITIAL_EVENTS_END, Shape};
use informerd_meta::ResourceVersion;

use super::form::Form;
use super::item::entry;
use super::wire::{Fields, Result, put_bytes, put_number};
use super::write::frame;

/// Writes a BOOKMARK frame.
///
/// `template` is the message of a bookmark that upstream sent for this type. It is the zero value of the Go type,
/// whose fields cannot be derived from anything else. The resourceVersion and the initial-events-end annotation are
/// rewritten; everything else stays. Without a template, or if the template is not such a message, the object has
/// only metadata.
pub fn bookmark_frame(
    form: &Form,
    template: Option<&Bytes>,
    rv: ResourceVersion,
    initial_events_end: bool,
    shape: Shape,
) -> Bytes {
    let template = template.filter(|_| shape == Shape::Full);
    let message = template.and_then(|template| from_template(template, rv, initial_events_end).ok());
    let message = message.unwrap_or_else(|| {
        let mut message = Vec::with_capacity(128);
        put_bytes(&mut message, 1, &metadata(rv, initial_events_end));
        message
    });
    frame("BOOKMARK", form.object.of(shape), &message)
}

/// Writes an ObjectMeta with only a resourceVersion and the annotation. Zero values are written as Go writes them.
fn metadata(rv: ResourceVersion, initial_events_end: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for number in 1..=5 {
        put_bytes(&mut out, number, b"");
    }
    put_bytes(&mut out, 6, rv.to_string().as_bytes());
    // generation and creationTimestamp.
    put_number(&mut out, 7, 0);
    put_bytes(&mut out, 8, b"");
    if initial_events_end {
        put_end(&mut out);
    }
    out
}

fn put_end(out: &mut Vec<u8>) {
    let mut annotation = Vec::new();
    put_bytes(&mut annotation, 1, INITIAL_EVENTS_END.as_bytes());
    put_bytes(&mut annotation, 2, b"true");
    put_bytes(out, 12, &annotation);
}

fn from_template(template: &[u8], rv: ResourceVersion, initial_events_end: bool) -> Result<Vec<u8>> {
    let first = Fields::new(template).next()?.filter(|field| field.number == 1);
    let first = first.ok_or(CodecError::Missing("metadata"))?;
    let old = first.value.bytes("metadata")?;
    let mut metadata = Vec::with_capacity(old.len() + 64);
    // The entries of a map are sorted by key.
    let mut end = initial_events_end;
    let mut fields = Fields::new(old);
    while let Some(field) = fields.next()? {
        let annotation = if field.number == 12 { entry(field.value.bytes("metadata.annotations")?)?.0 } else { b"" };
        if end && (field.number > 12 || annotation > INITIAL_EVENTS_END.as_bytes()) {
            put_end(&mut metadata);
            end = false;
        }
        if field.number == 6 {
            put_bytes(&mut metadata, 6, rv.to_string().as_bytes());
        } else if annotation != INITIAL_EVENTS_END.as_bytes() {
            metadata.extend_from_slice(old.get(field.start..field.end).unwrap_or_default());
        }
    }
    if end {
        put_end(&mut metadata);
    }
    let mut out = Vec::with_capacity(template.len() + 64);
    put_bytes(&mut out, 1, &metadata);
    out.extend_from_slice(template.get(first.end..).unwrap_or_default());
    Ok(out)
}

/// Reads the resourceVersion of a bookmark's object, and whether it is annotated as the end of the initial events.
pub(super) fn read_bookmark(message: &[u8]) -> Result<(ResourceVersion, bool)> {
    let (mut rv, mut initial_events_end) = (None, false);
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        if field.number != 1 {
            continue;
        }
        let mut metadata = Fields::new(field.value.bytes("metadata")?);
        while let Some(field) = metadata.next()? {
            match field.number {
                6 => rv = ResourceVersion::parse(field.value.text("metadata.resourceVersion")?),
                12 => {
                    initial_events_end |=
                        entry(field.value.bytes("metadata.annotations")?)? == (INITIAL_EVENTS_END.as_bytes(), b"true");
                }
                _ => {}
            }
        }
    }
    Ok((rv.ok_or(CodecError::Invalid("metadata.resourceVersion of a bookmark"))?, initial_events_end))
}
