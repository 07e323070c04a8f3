//! Writes GET bodies and watch frames around the bytes of an object.

use bytes::Bytes;

use crate::{Shape, Slices};
use informerd_meta::{Damaged, EventType, Object, Raw, ResourceVersion};

use super::form::{Form, Style};
use super::metadata::partial_metadata;

/// Writes one object without any framing. `rv_override` has the same meaning as in [`event_frame`].
///
/// # Errors
/// The bytes of the object are damaged, as for all that is written here.
pub fn object_bytes(
    form: &Form,
    object: &Object,
    rv_override: Option<ResourceVersion>,
    shape: Shape,
) -> Result<Slices, Damaged> {
    let mut out = Slices::new();
    if shape == Shape::Full {
        let raw = object.raw()?;
        let style = form.style_of(&raw.item());
        if style == Style::Stripped {
            out.push(form.body_prefix.clone());
        }
        push_item(&mut out, style, &raw, rv_override);
    } else {
        out.push_static(shape.partial_prefix().as_bytes());
        out.append(partial_metadata(form, object, rv_override, false)?);
        out.push_static(b"}");
    }
    Ok(out)
}

/// Writes one event of a watch, including the newline. `rv_override` replaces the resourceVersion of the object, as
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
    let mut out = Slices::new();
    if shape == Shape::Full {
        let raw = object.raw()?;
        let style = form.style_of(&raw.item());
        out.push(match style {
            Style::Stripped => form.frame_prefix(kind),
            Style::Inline => Bytes::from_static(inline_prefix(kind)),
        });
        push_item(&mut out, style, &raw, rv_override);
        out.push_static(b"}\n");
    } else {
        out.push_static(inline_prefix(kind));
        out.push_static(shape.partial_prefix().as_bytes());
        out.append(partial_metadata(form, object, rv_override, true)?);
        out.push_static(b"}}\n");
    }
    Ok(out)
}

/// Writes the item. A stripped item is written without its opening brace.
fn push_item(out: &mut Slices, style: Style, raw: &Raw, rv_override: Option<ResourceVersion>) {
    let start = usize::from(style == Style::Stripped);
    match rv_override {
        None => out.push(raw.slice(start..raw.len())),
        Some(rv) => {
            let digits = raw.rv_range();
            out.push(raw.slice(start..digits.start));
            out.push(Bytes::from(rv.to_string()));
            out.push(raw.slice(digits.end..raw.len()));
        }
    }
}

pub(crate) fn inline_prefix(kind: EventType) -> &'static [u8] {
    match kind {
        EventType::Added => br#"{"type":"ADDED","object":"#,
        EventType::Modified => br#"{"type":"MODIFIED","object":"#,
        EventType::Deleted => br#"{"type":"DELETED","object":"#,
    }
}
