//! As much of Kubernetes' protobuf as is needed: decoded from the requests of `kubectl create`, and encoded for clients of
//! a server that was told to. It knows the members that these set and drops all others, so it knows only the kinds listed
//! here.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Field number, JSON name, type.
type Field = (u64, &'static str, Type);

#[derive(Clone, Copy)]
enum Type {
    Text,
    Texts,
    Number,
    Flag,
    Texts2Text,
    Texts2Bytes,
    IntOrText,
    /// Of the server's own clock, so it is not read from requests.
    Time,
    One(&'static [Field]),
    Many(&'static [Field]),
}

const MAGIC: &[u8] = b"k8s\0";

const METADATA: Type = Type::One(&[
    (1, "name", Type::Text),
    (2, "generateName", Type::Text),
    (3, "namespace", Type::Text),
    (5, "uid", Type::Text),
    (6, "resourceVersion", Type::Text),
    (8, "creationTimestamp", Type::Time),
    (11, "labels", Type::Texts2Text),
    (12, "annotations", Type::Texts2Text),
]);

const CONTAINER: &[Field] = &[
    (1, "name", Type::Text),
    (2, "image", Type::Text),
    (3, "command", Type::Texts),
    (4, "args", Type::Texts),
    (
        6,
        "ports",
        Type::Many(&[(1, "name", Type::Text), (3, "containerPort", Type::Number), (4, "protocol", Type::Text)]),
    ),
    (7, "env", Type::Many(&[(1, "name", Type::Text), (2, "value", Type::Text)])),
    (14, "imagePullPolicy", Type::Text),
];

const POD_SPEC: Type = Type::One(&[(2, "containers", Type::Many(CONTAINER)), (3, "restartPolicy", Type::Text)]);

const SERVICE_PORT: &[Field] = &[
    (1, "name", Type::Text),
    (2, "protocol", Type::Text),
    (3, "port", Type::Number),
    (4, "targetPort", Type::IntOrText),
    (5, "nodePort", Type::Number),
];

const KINDS: &[(&str, &[Field])] = &[
    ("Namespace", &[(1, "metadata", METADATA)]),
    ("ServiceAccount", &[(1, "metadata", METADATA)]),
    (
        "ConfigMap",
        &[
            (1, "metadata", METADATA),
            (2, "data", Type::Texts2Text),
            (3, "binaryData", Type::Texts2Bytes),
            (4, "immutable", Type::Flag),
        ],
    ),
    ("Secret", &[(1, "metadata", METADATA), (2, "data", Type::Texts2Bytes), (3, "type", Type::Text)]),
    (
        "Status",
        &[(2, "status", Type::Text), (3, "message", Type::Text), (4, "reason", Type::Text), (6, "code", Type::Number)],
    ),
    (
        "Service",
        &[
            (1, "metadata", METADATA),
            (
                2,
                "spec",
                Type::One(&[
                    (1, "ports", Type::Many(SERVICE_PORT)),
                    (2, "selector", Type::Texts2Text),
                    (3, "clusterIP", Type::Text),
                    (4, "type", Type::Text),
                ]),
            ),
        ],
    ),
    (
        "Deployment",
        &[
            (1, "metadata", METADATA),
            (
                2,
                "spec",
                Type::One(&[
                    (1, "replicas", Type::Number),
                    (2, "selector", Type::One(&[(1, "matchLabels", Type::Texts2Text)])),
                    (3, "template", Type::One(&[(1, "metadata", METADATA), (2, "spec", POD_SPEC)])),
                ]),
            ),
        ],
    ),
];

/// Decodes the object in a protobuf envelope. Returns `None` if it is invalid or of an unknown kind.
pub(super) fn decode(body: &[u8]) -> Option<Value> {
    const TYPE: &[Field] = &[(1, "apiVersion", Type::Text), (2, "kind", Type::Text)];
    let envelope = fields(body.strip_prefix(MAGIC)?)?;
    let part = |number: u64| envelope.iter().find(|(n, _)| *n == number).and_then(|(_, wire)| wire.bytes());
    let mut object = message(part(1)?, TYPE)?;
    let members = message(part(2)?, schema(object.get("kind")?.as_str()?)?)?;
    object.extend(members);
    Some(Value::Object(object))
}

/// Whether all members that objects of this kind have here are known.
pub(super) fn encodes(kind: &str) -> bool {
    matches!(kind, "ConfigMap" | "Secret" | "Status")
}

/// The envelope of an object.
pub(super) fn encode(object: &Value) -> Vec<u8> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let members = written(object, schema(kind).unwrap_or_default());
    envelope(object["apiVersion"].as_str().unwrap_or_default(), kind, &members)
}

/// The envelope of a list, whose metadata has the members of JSON.
pub(super) fn encode_list(version: &str, kind: &str, metadata: &Value, items: impl Iterator<Item = Value>) -> Vec<u8> {
    const MEMBERS: &[Field] =
        &[(2, "resourceVersion", Type::Text), (3, "continue", Type::Text), (4, "remainingItemCount", Type::Number)];
    let schema = schema(kind).unwrap_or_default();
    let mut list = Vec::new();
    put(&mut list, 1, &written(metadata, MEMBERS));
    for item in items {
        put(&mut list, 2, &written(&item, schema));
    }
    envelope(version, &format!("{kind}List"), &list)
}

/// A frame of a watch. `object` is an envelope.
pub(super) fn frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    put(&mut raw, 1, object);
    let mut message = Vec::new();
    put(&mut message, 1, event.as_bytes());
    put(&mut message, 2, &raw);
    [&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes()[..], &message].concat()
}

fn schema(kind: &str) -> Option<&'static [Field]> {
    KINDS.iter().find(|(name, _)| *name == kind).map(|(_, schema)| *schema)
}

fn envelope(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut of = Vec::new();
    put(&mut of, 1, version.as_bytes());
    put(&mut of, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    put(&mut out, 1, &of);
    put(&mut out, 2, message);
    out
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

fn put(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A message of the members that the schema names. A value that is not of its field's type is written as what it is, so
/// that what cannot be decoded in JSON cannot be decoded in protobuf.
fn written(object: &Value, schema: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, name, of) in schema {
        match (of, &object[*name]) {
            (_, Value::Null) => {}
            (Type::One(schema), inner) => put(&mut out, *number, &written(inner, schema)),
            (Type::Texts2Text | Type::Texts2Bytes, Value::Object(entries)) => {
                for (key, value) in entries {
                    let text = value.as_str().unwrap_or_default();
                    let bytes = matches!(of, Type::Texts2Bytes).then(|| STANDARD.decode(text).ok()).flatten();
                    let mut entry = Vec::new();
                    put(&mut entry, 1, key.as_bytes());
                    put(&mut entry, 2, bytes.as_deref().unwrap_or(text.as_bytes()));
                    put(&mut out, *number, &entry);
                }
            }
            (Type::Time, Value::String(text)) => {
                let seconds = text.parse().map_or(0, jiff::Timestamp::as_second);
                let mut time = Vec::new();
                put_number(&mut time, 1, seconds.cast_unsigned());
                put(&mut out, *number, &time);
            }
            // JSON shows U+FFFD where a text is not UTF-8.
            (_, Value::String(text)) => {
                put(&mut out, *number, &text.split('\u{fffd}').map(str::as_bytes).collect::<Vec<_>>().join(&0xff_u8));
            }
            (_, Value::Bool(flag)) => put_number(&mut out, *number, (*flag).into()),
            (_, Value::Number(value)) => {
                put_number(&mut out, *number, value.as_i64().unwrap_or_default().cast_unsigned());
            }
            (_, other) => put(&mut out, *number, other.to_string().as_bytes()),
        }
    }
    out
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(&self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }
}

/// The fields of a message, in order.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Wire<'_>)>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => Wire::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        all.push((tag >> 3, wire));
    }
    Some(all)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Omits empty values, as Go's `omitempty` does.
fn message(bytes: &[u8], schema: &[Field]) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    for (number, wire) in fields(bytes)? {
        let Some((_, name, of)) = schema.iter().find(|(n, ..)| *n == number) else { continue };
        let text = || Some(std::str::from_utf8(wire.bytes()?).ok()?.to_owned());
        match of {
            Type::Text => {
                let text = text()?;
                if !text.is_empty() {
                    object.insert((*name).into(), json!(text));
                }
            }
            Type::Number | Type::Flag => {
                let Wire::Number(value) = wire else { return None };
                if matches!(of, Type::Flag) {
                    object.insert((*name).into(), json!(value != 0));
                } else if value != 0 || *name == "replicas" {
                    object.insert((*name).into(), json!(value.cast_signed()));
                }
            }
            Type::Texts2Text | Type::Texts2Bytes => {
                let (mut key, mut value): (&[u8], &[u8]) = (b"", b"");
                for (number, part) in fields(wire.bytes()?)? {
                    match number {
                        1 => key = part.bytes()?,
                        _ => value = part.bytes()?,
                    }
                }
                let plain = matches!(of, Type::Texts2Text);
                let value = if plain { std::str::from_utf8(value).ok()?.to_owned() } else { STANDARD.encode(value) };
                object.entry(*name).or_insert_with(|| json!({}))[std::str::from_utf8(key).ok()?] = json!(value);
            }
            Type::Time => {}
            Type::IntOrText => {
                let parts = fields(wire.bytes()?)?;
                let number = parts.iter().find_map(|(n, part)| match part {
                    Wire::Number(value) if *n == 2 => Some(*value),
                    _ => None,
                });
                let text = parts.iter().find(|(n, _)| *n == 3).and_then(|(_, part)| part.bytes()).unwrap_or_default();
                let value =
                    if text.is_empty() { json!(number.unwrap_or(0)) } else { json!(std::str::from_utf8(text).ok()?) };
                object.insert((*name).into(), value);
            }
            Type::One(schema) => {
                object.insert((*name).into(), Value::Object(message(wire.bytes()?, schema)?));
            }
            Type::Texts | Type::Many(_) => {
                let value = match of {
                    Type::Many(schema) => Value::Object(message(wire.bytes()?, schema)?),
                    _ => json!(text()?),
                };
                if let Value::Array(items) = object.entry(*name).or_insert_with(|| json!([])) {
                    items.push(value);
                }
            }
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    #[test]
    fn takes_a_config_map() {
        let type_meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
        let metadata = [field(1, b"c"), field(3, b"")].concat();
        let entry = [field(1, b"key"), field(2, b"value")].concat();
        let raw = [field(1, &metadata), field(2, &entry), vec![4 << 3, 1]].concat();
        let body = [MAGIC, &field(1, &type_meta), &field(2, &raw)].concat();
        let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"key": "value"},
            "immutable": true});
        assert_eq!(decode(&body), Some(expected));
        assert_eq!(decode(&body[..body.len() - 3]), None, "cut short");
    }

    #[test]
    fn what_is_encoded_is_what_is_decoded() {
        let of = |labels: Value| {
            let metadata =
                json!({"name": "c", "namespace": "n", "uid": "u", "resourceVersion": "1000", "labels": labels});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "v".repeat(300)}})
        };
        assert_eq!(decode(&encode(&of(json!({"a": "b"})))), Some(of(json!({"a": "b"}))));
        assert_eq!(decode(&encode(&of(json!(["a"])))), None, "labels are no list");
        let mut odd = of(json!({}));
        odd["metadata"]["name"] = json!("a\u{fffd}b");
        assert!(encode(&odd).windows(3).any(|bytes| bytes == b"a\xffb"), "what JSON cannot show");
    }
}
