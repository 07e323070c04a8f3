//! Bookmarks: the object that upstream sent for this type, with another resourceVersion.

use bytes::Bytes;

use crate::{INITIAL_EVENTS_END, Shape, table};
use informerd_meta::ResourceVersion;

use super::form::{Form, Style};
use super::metadata::rank;
use super::scan::{Result, Scanner};
use super::text::push_string;

/// Writes a BOOKMARK frame, including the newline.
///
/// `template` is the object of a bookmark that upstream sent for this type. It is the zero value of the Go type, so
/// it shows the required fields, which cannot be derived from anything else. The resourceVersion and the
/// initial-events-end annotation are rewritten; everything else stays. Without a template, or if the template is not
/// such an object, the frame has only kind, apiVersion and metadata.
pub fn bookmark_frame(
    form: &Form,
    template: Option<&Bytes>,
    rv: ResourceVersion,
    initial_events_end: bool,
    shape: Shape,
) -> Bytes {
    let of_row = template.filter(|_| form.in_rows).and_then(table::object_of);
    let mut out = String::from("{\"type\":\"BOOKMARK\",\"object\":");
    push_object_of(&mut out, form, of_row.as_ref().or(template), rv, initial_events_end, shape);
    out.push_str("}\n");
    out.into()
}

/// Writes only the object of a BOOKMARK event.
pub fn bookmark_object(
    form: &Form,
    template: Option<&Bytes>,
    rv: ResourceVersion,
    initial_events_end: bool,
    shape: Shape,
) -> Bytes {
    let mut out = String::new();
    push_object_of(&mut out, form, template, rv, initial_events_end, shape);
    out.into()
}

fn push_object_of(
    out: &mut String,
    form: &Form,
    template: Option<&Bytes>,
    rv: ResourceVersion,
    initial_events_end: bool,
    shape: Shape,
) {
    // Go sorts the keys of maps, but not the fields of structs. Partial objects are structs.
    let sorted = form.style == Style::Inline && shape == Shape::Full;
    let change = Change { rv, initial_events_end, sorted, unshown: form.unshown };
    let start = out.len();
    let done = template.is_some_and(|template| from_template(out, template, &change, shape).is_ok());
    if !done {
        out.truncate(start);
        minimal(out, form, &change, shape);
    }
}

/// The values to rewrite, and the order of the members.
struct Change {
    rv: ResourceVersion,
    initial_events_end: bool,
    sorted: bool,
    /// Annotations that the partial shapes omit.
    unshown: &'static [&'static str],
}

fn minimal(out: &mut String, form: &Form, change: &Change, shape: Shape) {
    let (kind, api_version) = match shape.partial_api_version() {
        Some(api_version) => ("PartialObjectMetadata", api_version),
        None => (&*form.kind, &*form.api_version),
    };
    let members = [("\"kind\":", kind), ("\"apiVersion\":", api_version)];
    for (index, at) in if change.sorted { [1, 0] } else { [0, 1] }.into_iter().enumerate() {
        let (name, value) = members[at];
        out.push(if index == 0 { '{' } else { ',' });
        out.push_str(name);
        push_string(out, value);
    }
    out.push_str(",\"metadata\":");
    change.metadata(out, Vec::new(), Vec::new());
    out.push('}');
}

fn from_template(out: &mut String, template: &[u8], change: &Change, shape: Shape) -> Result<()> {
    let text = std::str::from_utf8(template).map_err(|_| crate::CodecError::NotUtf8)?;
    let mut scanner = Scanner::new(template);
    let mut metadata = None;
    let (mut members, mut annotations) = (Vec::new(), Vec::new());
    scanner.object(|scanner, key| {
        if !key.is("metadata") {
            return scanner.skip_value();
        }
        let start = scanner.position();
        scanner.object(|scanner, key| {
            let (name, at) = (key.get().into_owned(), scanner.position());
            if name == "annotations" && scanner.peek()? == b'{' {
                scanner.object(|scanner, key| {
                    let (name, at) = (key.get().into_owned(), scanner.position());
                    scanner.skip_value()?;
                    annotations.push((name, text[at..scanner.position()].to_owned()));
                    Ok(())
                })
            } else {
                scanner.skip_value()?;
                members.push((name, text[at..scanner.position()].to_owned()));
                Ok(())
            }
        })?;
        metadata = Some(start..scanner.position());
        Ok(())
    })?;
    scanner.end()?;
    let metadata = metadata.ok_or(crate::CodecError::Missing("metadata"))?;
    if let Some(api_version) = shape.partial_api_version() {
        out.push_str("{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":");
        push_string(out, api_version);
        out.push_str(",\"metadata\":");
        annotations.retain(|(name, _)| !change.unshown.contains(&name.as_str()));
        change.metadata(out, members, annotations);
        out.push('}');
    } else {
        out.push_str(&text[..metadata.start]);
        change.metadata(out, members, annotations);
        out.push_str(&text[metadata.end..]);
    }
    Ok(())
}

// === impl Change ===

impl Change {
    /// Writes a metadata object from members and annotations. Both are pairs of a name and a raw value.
    fn metadata(&self, out: &mut String, mut members: Vec<(String, String)>, mut annotations: Vec<(String, String)>) {
        annotations.retain(|(name, _)| name != INITIAL_EVENTS_END);
        if self.initial_events_end {
            annotations.push((INITIAL_EVENTS_END.into(), "\"true\"".into()));
        }
        annotations.sort();
        members.retain(|(name, _)| name != "resourceVersion" && name != "annotations");
        members.push(("resourceVersion".into(), format!("\"{}\"", self.rv)));
        if !annotations.is_empty() {
            let mut object = String::new();
            push_object(&mut object, &annotations);
            members.push(("annotations".into(), object));
        }
        if self.sorted {
            members.sort();
        } else {
            members.sort_by_key(|(name, _)| rank(name));
        }
        push_object(out, &members);
    }
}

fn push_object(out: &mut String, members: &[(String, String)]) {
    let mut open = '{';
    for (name, value) in members {
        out.push(open);
        open = ',';
        push_string(out, name);
        out.push(':');
        out.push_str(value);
    }
    if members.is_empty() {
        out.push(open);
    }
    out.push('}');
}
