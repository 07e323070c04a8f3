//! One object in JSON, against the same object as serde_json reads it.
//!
//! Deliberate differences: Go's decoder takes a member twice and lets the last one win, or merges the two. The apiserver
//! never writes that, and which one counts for selectors, authorization and the bytes that are kept could differ. So the
//! members that informerd itself reads must be unique. Null stands for a missing value in Go; here it does so in metadata, but
//! `kind` and `apiVersion` must be strings. The resourceVersion must be written without escapes, because its digits are
//! replaced in place.

use std::collections::BTreeMap;

use bytes::Bytes;
use informerd::codec::Slices;
use informerd::codec::json::{Indenter, Style, TypeMeta, parse_item};
use informerd::meta::Object;

use super::input::measured;
use super::json::{Json, is_beyond, is_valid};
use super::messages::is_of_key;
use super::pods::{field, table};

pub fn check(data: &[u8]) {
    let parsed = measured(data.len(), || parse_item(data, table()));
    if is_beyond(&parsed, data) {
        return;
    }
    if parsed.is_ok() {
        assert!(is_valid(data), "an item that is no JSON");
    }
    let Some(json) = Json::read(data) else { return };
    match (&parsed, Expected::of(&json)) {
        (Ok((object, type_meta)), Ok(expected)) => expected.compare(object, type_meta),
        (Err(_), Err(_)) => {}
        (parsed, expected) => panic!("{parsed:?}, but {expected:?}"),
    }
    if let Ok((object, type_meta)) = parsed {
        let (again, type_again) =
            parse_item(&object.raw().expect("its bytes").item(), table()).expect("what was kept can be read again");
        assert_eq!((&again.key, again.rv, &again.attributes), (&object.key, object.rv, &object.attributes));
        indented(&object);
        if type_meta.style == Style::Inline {
            assert_eq!(
                (&type_again, again.raw().expect("its bytes").item()),
                (&type_meta, object.raw().expect("its bytes").item())
            );
        }
    }
}

/// Written for people to read, in pieces and steps of any size, it says the same.
fn indented(object: &Object) {
    let item = object.raw().expect("its bytes").item();
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
    /// Names what must be refused.
    pub fn of(json: &'a Json) -> Result<Self, &'static str> {
        json.members().ok_or("no object")?;
        let of_type = |name| match json.once(name) {
            Ok(None) => Ok(""),
            Ok(Some(value)) => value.text().ok_or("a type that is no string"),
            Err(()) => Err("a type that occurs twice"),
        };
        let (kind, api_version) = (of_type("kind")?, of_type("apiVersion")?);
        let metadata = json.once("metadata").map_err(|()| "metadata that occurs twice")?.ok_or("no metadata")?;
        metadata.members().ok_or("metadata that is no object")?;
        let member = |name| {
            let mut found = None;
            for (_, value) in metadata.members().unwrap_or_default().iter().filter(|(key, _)| key == name) {
                match (found, value) {
                    // Null says nothing: another one may follow it.
                    (None, Json::Null) => {}
                    (None, Json::Text(..)) => found = Some(value),
                    _ => return Err("metadata of another type, or that occurs twice"),
                }
            }
            Ok(found)
        };
        let text = |name| Ok::<_, &'static str>(member(name)?.and_then(Json::text).unwrap_or(""));
        let (name, namespace, uid) = (text("name")?, text("namespace")?, text("uid")?);
        if name.is_empty() || !is_of_key(name) || !is_of_key(namespace) {
            return Err("no key");
        }
        let Some(Json::Text(digits, true)) = member("resourceVersion")? else { return Err("no resourceVersion") };
        let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
        let rv = digits.parse().ok().filter(|_| is_decimal).ok_or("no decimal resourceVersion")?;
        let mut labels = BTreeMap::new();
        match metadata.once("labels").map_err(|()| "labels that occur twice")? {
            None | Some(Json::Null) => {}
            Some(Json::Object(pairs)) => {
                for (key, value) in pairs {
                    labels.insert(key.as_str(), value.text().ok_or("a label that is no string")?);
                }
            }
            Some(_) => return Err("labels that are no object"),
        }
        Ok(Self { json, kind, api_version, metadata, name, namespace, uid, rv, labels })
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
        let raw = object.raw().expect("its bytes");
        let kept = Json::read(&raw.item()).expect("what is kept is JSON");
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
        assert_eq!(raw.clone().framed(), [&raw.item()[..], b","].concat());
        assert_eq!(Json::read(&raw.metadata()).as_ref(), Some(self.metadata));
        let digits = raw.slice(raw.rv_range());
        assert_eq!(std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok()), Some(self.rv));
    }
}
