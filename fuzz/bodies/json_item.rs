//! One object in JSON, against the same object as serde_json reads it.
//!
//! What may be refused, and why, is listed in `faults`.

use std::collections::BTreeMap;

use bytes::Bytes;
use informerd::codec::json::{Indenter, Style, TypeMeta, parse_item};
use informerd::codec::{CodecError, Slices};
use informerd::meta::Object;

use super::faults::{Faults, Why, agreed, member};
use super::input::{measured, repeated};
use super::json::{Json, is_beyond, is_valid};
use super::messages::{decimal, is_of_key};
use super::pods::{field, raw, table};

pub fn check(data: &[u8]) {
    let data = &*repeated(data);
    let parsed = measured(data.len(), || parse_item(data, table()));
    if is_beyond(&parsed, data) {
        return;
    }
    assert!(parsed.is_err() || is_valid(data), "an item that is no JSON");
    let Some(json) = Json::read(data) else { return };
    let Some(((object, type_meta), expected)) = agreed(parsed, Expected::of(&json)) else { return };
    expected.compare(&object, &type_meta);
    let (again, type_again) = parse_item(&raw(&object).item(), table()).expect("what was kept can be read again");
    assert_eq!((&again.key, again.rv, &again.attributes), (&object.key, object.rv, &object.attributes));
    // The lines of a deep one are longer than it.
    if json.is_whole() {
        indented(&object);
    }
    if type_meta.style == Style::Inline {
        assert_eq!((&type_again, raw(&again).item()), (&type_meta, raw(&object).item()));
    }
}

/// Written for people to read, in pieces and steps of any size, it says the same.
fn indented(object: &Object) {
    let item = raw(object).item();
    let pretty = |piece: usize, most: usize| {
        let (mut indenter, mut out) = (Indenter::default(), Vec::new());
        let mut rest: Slices = item.chunks(piece).map(Bytes::copy_from_slice).collect();
        while !rest.is_empty() {
            out.extend_from_slice(&indenter.step(&mut rest, most));
        }
        out
    };
    let whole = pretty(item.len(), usize::MAX);
    assert_eq!(Json::read(&whole), Json::read(&item));
    assert_eq!(whole, pretty(3, 5));
}

/// What an object says, by another reader.
#[derive(Debug)]
pub struct Expected<'a> {
    json: &'a Json,
    kind: &'a str,
    api_version: &'a str,
    metadata: &'a Json,
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    rv: u64,
    labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> Expected<'a> {
    /// # Errors
    /// All that is wrong with it.
    pub fn of(json: &'a Json) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        if !faults.is_object(json) {
            return Err(faults);
        }
        let [kind, api_version] = ["kind", "apiVersion"].map(|name| {
            faults.texts(json, name);
            faults.only(json, name).and_then(Json::text).unwrap_or_default()
        });
        json.named("metadata").for_each(|metadata| look_at(metadata, &mut faults));
        let metadata = faults.needed(json, "metadata").unwrap_or(json);
        // What is of the right types, and occurs once, is read.
        faults.or(())?;
        let mut faults = Faults::default();
        // Null says nothing: another one may follow it.
        let text = |name| metadata.named(name).find_map(Json::text);
        let (namespace, uid) = (text("namespace").unwrap_or_default(), text("uid").unwrap_or_default());
        let name = text("name").unwrap_or_else(|| {
            faults.push(CodecError::Missing("metadata.name"), Why::Missing);
            "unnamed"
        });
        if name.is_empty() || !is_of_key(name) {
            faults.push(CodecError::Invalid("metadata.name"), Why::Key);
        }
        if !is_of_key(namespace) {
            faults.push(CodecError::Invalid("metadata.namespace"), Why::Key);
        }
        let revision = metadata.named("resourceVersion").find(|value| **value != Json::Null);
        let rv = match revision {
            Some(Json::Text(digits, true)) => decimal(digits.as_bytes()),
            _ => None,
        };
        if revision.is_none() {
            faults.push(CodecError::Missing("metadata.resourceVersion"), Why::Missing);
        } else if rv.is_none() {
            faults.push(CodecError::Invalid("metadata.resourceVersion"), Why::Revision);
        }
        let labels = metadata.get("labels").and_then(Json::members).unwrap_or_default();
        let labels = labels.iter().filter_map(|(key, value)| Some((key.as_str(), value.text()?))).collect();
        let rv = rv.unwrap_or_default();
        faults.or(Self { json, kind, api_version, metadata, name, namespace, uid, rv, labels })
    }

    pub fn compare(&self, object: &Object, type_meta: &TypeMeta) {
        assert_eq!((&*type_meta.kind, &*type_meta.api_version), (self.kind, self.api_version));
        assert_eq!((object.key.namespace(), object.key.name()), (self.namespace, self.name));
        assert_eq!((object.rv.get(), object.attributes.uid()), (self.rv, self.uid));
        let labels: Vec<_> = self.labels.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(object.attributes.labels().collect::<Vec<_>>(), labels);
        self.compare_fields(object);
        self.compare_bytes(object, type_meta.style);
    }

    fn compare_fields(&self, object: &Object) {
        for (label, path, missing) in [
            ("spec.nodeName", &["spec", "nodeName"][..], ""),
            ("spec.schedulerName", &["spec", "schedulerName"], ""),
            ("spec.hostNetwork", &["spec", "hostNetwork"], "false"),
            ("status.phase", &["status", "phase"], ""),
        ] {
            if let Some(value) = self.scalar(path) {
                assert_eq!(field(object, label), value.unwrap_or(missing), "{label}");
            }
        }
        let account = ["serviceAccountName", "serviceAccount"].map(|name| self.scalar(&["spec", name]));
        if let [Some(first), Some(second)] = account {
            let value = first.filter(|value| !value.is_empty()).or(second).or(first).unwrap_or("");
            assert_eq!(field(object, "spec.serviceAccountName"), value);
        }
    }

    /// The text of a value; the outer `None` stands for a number, which Go writes in its own form.
    fn scalar(&self, path: &[&str]) -> Option<Option<&str>> {
        match path.iter().try_fold(self.json, |value, name| value.get(name)) {
            Some(Json::Text(text, _)) => Some(Some(text)),
            Some(Json::Bool(true)) => Some(Some("true")),
            Some(Json::Bool(false)) => Some(Some("false")),
            Some(Json::Number(_)) => None,
            Some(Json::Null | Json::Array(_) | Json::Object(_) | Json::Deep(_)) | None => Some(None),
        }
    }

    /// What is kept is the object, without its type if that stands in front, and without spaces.
    fn compare_bytes(&self, object: &Object, style: Style) {
        let raw = raw(object);
        assert_eq!(raw.clone().framed(), [&raw.item()[..], b","].concat());
        let digits = raw.slice(raw.rv_range());
        assert_eq!(std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()), Some(self.rv));
        let kept = Json::read(&raw.item()).expect("what is kept is JSON");
        // What is deep is text, and a part is less deep alone than in the whole.
        if !self.json.is_whole() {
            return;
        }
        let members = self.json.members().unwrap_or_default();
        let names: Vec<_> = members.iter().map(|(name, _)| name.as_str()).collect();
        let rest = match (style, &names[..]) {
            (Style::Stripped, ["kind", "apiVersion", _, ..]) => &members[2..],
            (Style::Stripped, _) => {
                assert!(!names.iter().any(|name| matches!(*name, "kind" | "apiVersion")), "{names:?}");
                members
            }
            (Style::Inline, _) => {
                assert!(names.contains(&"kind") || names.contains(&"apiVersion"), "{names:?}");
                members
            }
        };
        assert_eq!(kept.members(), Some(rest));
        assert_eq!(Json::read(&raw.metadata()).as_ref(), Some(self.metadata));
    }
}

/// What is wrong with the metadata of an object before it is read as a whole.
fn look_at(metadata: &Json, faults: &mut Faults) {
    if !faults.is_object(metadata) {
        return;
    }
    for label in ["metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion"] {
        let mut is_said = false;
        for value in metadata.named(member(label)) {
            if !matches!(value, Json::Null | Json::Text(..)) {
                faults.push(CodecError::Invalid(label), Why::Type);
            }
            if is_said {
                faults.push(CodecError::Duplicate(label), Why::Twice);
            }
            is_said |= value.text().is_some();
        }
    }
    faults.only(metadata, "metadata.labels");
    for labels in metadata.named("labels").filter(|labels| **labels != Json::Null) {
        if faults.is_object(labels) {
            for (_, value) in labels.members().unwrap_or_default().iter().filter(|(_, value)| value.text().is_none()) {
                faults.push(CodecError::Invalid("metadata.labels"), Why::of(value));
            }
        }
    }
}
