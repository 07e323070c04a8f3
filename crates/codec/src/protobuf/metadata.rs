//! Converts the metadata of custom resources to protobuf messages. The apiserver keeps these objects as JSON and
//! converts only their metadata, because its type is the same for all resources. informerd does the same.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::lossy::lossy;
use informerd_meta::{Moment, Object, Raw, ResourceVersion};

use super::wire::{put_bytes, put_header, put_number};

/// ObjectMeta as it is in JSON. A null value counts as missing. The `borrow` of one field binds the lifetime of all.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    generate_name: Text<'a>,
    namespace: Text<'a>,
    self_link: Text<'a>,
    uid: Text<'a>,
    generation: Option<i64>,
    creation_timestamp: Text<'a>,
    deletion_timestamp: Text<'a>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<Cow<'a, str>, Text<'a>>>,
    annotations: Option<BTreeMap<Cow<'a, str>, Text<'a>>>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
    finalizers: Option<Vec<Text<'a>>>,
    managed_fields: Option<Vec<ManagedFields<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    kind: Text<'a>,
    name: Text<'a>,
    uid: Text<'a>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedFields<'a> {
    #[serde(borrow)]
    manager: Text<'a>,
    operation: Text<'a>,
    api_version: Text<'a>,
    time: Text<'a>,
    fields_type: Text<'a>,
    fields_v1: Option<&'a RawValue>,
    subresource: Text<'a>,
}

/// A string that may be null.
#[derive(Default, Deserialize)]
struct Text<'a>(#[serde(borrow)] Option<Cow<'a, str>>);

/// Writes the message of a PartialObjectMetadata for an object that is stored as JSON: its metadata is the first
/// field. `rv_override` replaces the resourceVersion.
pub(super) fn from_json(object: &Object, raw: &Raw, rv_override: Option<ResourceVersion>) -> Vec<u8> {
    let json = raw.metadata();
    // The apiserver stores only valid metadata. Anything else is omitted.
    let json = lossy(&json);
    let metadata: ObjectMeta<'_> = serde_json::from_str(&json).unwrap_or_default();
    let message = metadata.message(object, rv_override.unwrap_or(object.rv));
    let mut out = Vec::with_capacity(message.len() + 6);
    put_bytes(&mut out, 1, &message);
    out
}

// === impl ObjectMeta ===

impl ObjectMeta<'_> {
    fn message(&self, object: &Object, rv: ResourceVersion) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        let name = if self.name.is_empty() { object.key.name() } else { self.name.get() };
        put_bytes(&mut out, 1, name.as_bytes());
        self.generate_name.put(&mut out, 2);
        self.namespace.put(&mut out, 3);
        self.self_link.put(&mut out, 4);
        self.uid.put(&mut out, 5);
        put_bytes(&mut out, 6, rv.to_string().as_bytes());
        put_number(&mut out, 7, self.generation.unwrap_or_default());
        put_time(&mut out, 8, self.creation_timestamp.get());
        if self.deletion_timestamp.0.is_some() {
            put_time(&mut out, 9, self.deletion_timestamp.get());
        }
        if let Some(seconds) = self.deletion_grace_period_seconds {
            put_number(&mut out, 10, seconds);
        }
        for (number, map) in [(11, &self.labels), (12, &self.annotations)] {
            for (key, value) in map.iter().flatten() {
                let mut entry = Vec::with_capacity(key.len() + value.get().len() + 8);
                put_bytes(&mut entry, 1, key.as_bytes());
                value.put(&mut entry, 2);
                put_bytes(&mut out, number, &entry);
            }
        }
        for owner in self.owner_references.iter().flatten() {
            put_bytes(&mut out, 13, &owner.message());
        }
        for finalizer in self.finalizers.iter().flatten() {
            finalizer.put(&mut out, 14);
        }
        for entry in self.managed_fields.iter().flatten() {
            let message = entry.message();
            // The field number needs a two-byte tag.
            out.extend_from_slice(&[0x8a, 0x01]);
            super::wire::put_varint(&mut out, message.len() as u64);
            out.extend_from_slice(&message);
        }
        out
    }
}

// === impl OwnerReference ===

impl OwnerReference<'_> {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.kind.put(&mut out, 1);
        self.name.put(&mut out, 3);
        self.uid.put(&mut out, 4);
        self.api_version.put(&mut out, 5);
        for (number, flag) in [(6, self.controller), (7, self.block_owner_deletion)] {
            if let Some(flag) = flag {
                put_number(&mut out, number, flag.into());
            }
        }
        out
    }
}

// === impl ManagedFields ===

impl ManagedFields<'_> {
    fn message(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.manager.put(&mut out, 1);
        self.operation.put(&mut out, 2);
        self.api_version.put(&mut out, 3);
        if self.time.0.is_some() {
            put_time(&mut out, 4, self.time.get());
        }
        self.fields_type.put(&mut out, 6);
        if let Some(fields) = self.fields_v1 {
            let mut message = Vec::with_capacity(fields.get().len() + 6);
            put_bytes(&mut message, 1, fields.get().as_bytes());
            put_bytes(&mut out, 7, &message);
        }
        self.subresource.put(&mut out, 8);
        out
    }
}

// === impl Text ===

impl Text<'_> {
    fn get(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.get().is_empty()
    }

    fn put(&self, out: &mut Vec<u8>, number: u8) {
        put_bytes(out, number, self.get().as_bytes());
    }
}

/// Writes a time in whole seconds, which is the precision of the apiserver. The zero time is an empty message.
fn put_time(out: &mut Vec<u8>, number: u8, text: &str) {
    let Some(time) = Moment::parse(text).filter(|time| !time.is_zero()) else { return put_header(out, number, 0) };
    let mut message = Vec::with_capacity(16);
    put_number(&mut message, 1, time.seconds());
    put_number(&mut message, 2, 0);
    put_bytes(out, number, &message);
}
