//! Writes lists as head, items and tail, so that they can be streamed.

use bytes::Bytes;

use crate::{ListMetaOut, Shape, Slices};
use informerd_meta::strconv::json_quote;
use informerd_meta::{Damaged, Object};

use super::form::{Form, Style};
use super::metadata::partial_metadata;

/// Writes everything before the first item. `empty` means that no item follows.
pub fn list_head(form: &Form, shape: Shape, meta: &ListMetaOut, empty: bool) -> Bytes {
    let (api_version, kind) = match shape.partial_api_version() {
        Some(api_version) => (api_version, "PartialObjectMetadataList"),
        None => (&*form.api_version, &*form.list_kind),
    };
    let (api_version, kind) = (json_quote(api_version), json_quote(kind));
    if unstructured(form, shape) {
        return format!("{{\"apiVersion\":{api_version},\"items\":[").into();
    }
    let mut out = format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":");
    push_list_meta(&mut out, meta);
    out.push_str(",\"items\":");
    // The apiserver appends the items of a partial list to a nil slice. Without items it stays nil and is written as
    // null.
    out.push_str(if empty && shape != Shape::Full { "null" } else { "[" });
    out.into()
}

/// Writes the metadata of a list in the way Go writes the struct.
pub(crate) fn push_list_meta(out: &mut String, meta: &ListMetaOut) {
    out.push_str("{\"resourceVersion\":\"");
    out.push_str(&meta.rv.to_string());
    out.push('"');
    if let Some(token) = &meta.continue_token {
        out.push_str(",\"continue\":");
        out.push_str(&json_quote(token));
    }
    if let Some(remaining) = meta.remaining {
        out.push_str(",\"remainingItemCount\":");
        out.push_str(&remaining.to_string());
    }
    if let Some(selector) = &meta.shard {
        out.push_str(",\"shardInfo\":{\"selector\":");
        out.push_str(&json_quote(selector));
        out.push('}');
    }
    out.push('}');
}

/// Writes one item, and a comma after it unless it is the last item.
///
/// # Errors
/// The bytes of the object are damaged.
pub fn list_item(form: &Form, object: &Object, shape: Shape, last: bool) -> Result<Slices, Damaged> {
    if shape == Shape::Full {
        let raw = object.raw()?;
        let has_own = !form.typed_items || form.style_of(&raw.item()) == Style::Inline;
        let bytes = if last { raw.item() } else { raw.framed() };
        if has_own {
            return Ok(Slices::from(bytes));
        }
        let mut out = Slices::from(form.body_prefix.clone());
        out.push(bytes.slice(1..));
        return Ok(out);
    }
    let mut out = Slices::from(Bytes::from(shape.partial_prefix()));
    out.append(partial_metadata(form, object, None, false)?);
    out.push_static(if last { b"}" } else { b"}," });
    Ok(out)
}

/// Writes everything after the last item, including the final newline. Call it with the same arguments as
/// [`list_head`].
pub fn list_tail(form: &Form, shape: Shape, meta: &ListMetaOut, empty: bool) -> Bytes {
    if !unstructured(form, shape) {
        return Bytes::from_static(if empty && shape != Shape::Full { b"}\n" } else { b"]}\n" });
    }
    // An unstructured list always sets the continue token, even to an empty one.
    let token = json_quote(meta.continue_token.as_deref().unwrap_or_default());
    let remaining = meta.remaining.map(|count| format!(",\"remainingItemCount\":{count}")).unwrap_or_default();
    let (kind, rv) = (json_quote(&form.list_kind), meta.rv);
    let metadata = format!("{{\"continue\":{token}{remaining},\"resourceVersion\":\"{rv}\"}}");
    format!("],\"kind\":{kind},\"metadata\":{metadata}}}\n").into()
}

/// Partial lists are typed, even if their items are custom resources.
fn unstructured(form: &Form, shape: Shape) -> bool {
    form.style == Style::Inline && shape == Shape::Full
}
