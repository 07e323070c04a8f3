//! Bookmarks: the object that upstream sent for this type, with another resourceVersion.

use bytes::Bytes;

use crate::{CodecError, INITIAL_EVENTS_END, Shape, table};
use informerd_meta::ResourceVersion;
use informerd_meta::strconv::{json_quote, push_json_string};

use super::form::{Form, Style};
use super::metadata::rank;
use super::scan::{Result, Scanner};

/// The object of a bookmark: what is around its metadata, and the members of the metadata. A member or an annotation is
/// a name and a raw value.
#[derive(Default)]
struct Template {
    head: String,
    members: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    tail: String,
}

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
    let object = bookmark_object(form, of_row.as_ref().or(template), rv, initial_events_end, shape);
    format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n").into()
}

/// Writes only the object of a BOOKMARK event.
pub(crate) fn bookmark_object(
    form: &Form,
    template: Option<&Bytes>,
    rv: ResourceVersion,
    initial_events_end: bool,
    shape: Shape,
) -> String {
    let template = template.and_then(|template| Template::read(template).ok());
    let Template { head, mut members, mut annotations, tail } = template.unwrap_or_else(|| Template::minimal(form));
    let is_partial = shape.partial_api_version().is_some();
    annotations
        .retain(|(name, _)| name != INITIAL_EVENTS_END && !(is_partial && form.unshown.contains(&name.as_str())));
    if initial_events_end {
        annotations.push((INITIAL_EVENTS_END.into(), "\"true\"".into()));
    }
    annotations.sort();
    members.retain(|(name, _)| name != "resourceVersion" && name != "annotations");
    members.push(("resourceVersion".into(), format!("\"{rv}\"")));
    if !annotations.is_empty() {
        members.push(("annotations".into(), object(&annotations)));
    }
    // Go sorts the keys of maps, but not the fields of structs. Partial objects are structs.
    if form.style == Style::Inline && shape == Shape::Full {
        members.sort();
    } else {
        members.sort_by_key(|(name, _)| rank(name));
    }
    let metadata = object(&members);
    if is_partial { format!("{}{metadata}}}", shape.partial_prefix()) } else { format!("{head}{metadata}{tail}") }
}

// === impl Template ===

impl Template {
    /// An object with nothing but its type.
    fn minimal(form: &Form) -> Self {
        let (kind, api_version) = (json_quote(&form.kind), json_quote(&form.api_version));
        let head = match form.style {
            Style::Stripped => format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":"),
            Style::Inline => format!("{{\"apiVersion\":{api_version},\"kind\":{kind},\"metadata\":"),
        };
        Self { head, tail: "}".into(), ..Self::default() }
    }

    fn read(object: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(object).map_err(|_| CodecError::NotUtf8)?;
        let mut scanner = Scanner::new(object);
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
        let metadata = metadata.ok_or(CodecError::Missing("metadata"))?;
        let (head, tail) = (text[..metadata.start].to_owned(), text[metadata.end..].to_owned());
        Ok(Self { head, members, annotations, tail })
    }
}

fn object(members: &[(String, String)]) -> String {
    let mut out = String::from("{");
    for (index, (name, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_json_string(&mut out, name);
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}
