//! The metadata of an object alone, in JSON and in protobuf, against the object as serde_json reads it.
//!
//! The order of members and what is left out are those of the ObjectMeta struct in Go.

use std::sync::Arc;

use informerd::codec::json::{Style, parse_item};
use informerd::codec::{Form, Shape};
use informerd::meta::{Encoding, EventType, Object, ResourceVersion};
use prost::Message;

use super::input::repeated;
use super::json::Json;
use super::messages::{ObjectMeta, Pod, text, unwrapped};
use super::pods::{bytes, raw, table};

/// Members of ObjectMeta, and whether an empty value is left out.
const OBJECT_META: &[(&str, bool)] = &[
    ("name", true),
    ("generateName", true),
    ("namespace", true),
    ("selfLink", true),
    ("uid", true),
    ("resourceVersion", true),
    ("generation", true),
    ("creationTimestamp", false),
    ("deletionTimestamp", false),
    ("deletionGracePeriodSeconds", false),
    ("labels", true),
    ("annotations", true),
    ("ownerReferences", true),
    ("finalizers", true),
    ("managedFields", true),
];
const OWNER: &[(&str, bool)] = &[
    ("apiVersion", false),
    ("kind", false),
    ("name", false),
    ("uid", false),
    ("controller", false),
    ("blockOwnerDeletion", false),
];
const MANAGED: &[(&str, bool)] = &[
    ("manager", true),
    ("operation", true),
    ("apiVersion", true),
    ("time", false),
    ("fieldsType", true),
    ("fieldsV1", false),
    ("subresource", true),
];
/// An annotation that the metadata of a Deployment does not show.
const UNSHOWN: &str = "deprecated.deployment.rollback.to";

pub fn check(data: &[u8]) {
    let Ok((object, type_meta)) = parse_item(&repeated(data), table()) else { return };
    let Some(json) = Json::read(&raw(&object).metadata()) else { return };
    let form = Form::new(Encoding::Json, type_meta.style, "apps/v1", "Deployment", "DeploymentList");
    for rv in [None, Some(ResourceVersion(1)), Some(ResourceVersion(u64::MAX))] {
        let expected = match type_meta.style {
            Style::Inline => ordered(&json, rv.unwrap_or(object.rv)),
            Style::Stripped => as_it_is(&json, rv),
        };
        let Some(expected) = expected else { continue };
        let body = bytes(form.object(&object, rv, Shape::PartialObjectMetadata));
        let frame = bytes(form.event_frame(EventType::Modified, &object, rv, Shape::PartialObjectMetadata));
        let (body, frame) = (Json::read(&body).expect("a body is JSON"), Json::read(&frame).expect("a frame is JSON"));
        // What is deep is text, and it is deepest in a frame.
        if frame.is_whole() {
            assert_eq!(body.get("metadata"), Some(&expected));
            assert_eq!(frame.get("object"), Some(&body));
        }
    }
    in_protobuf(&Arc::new(form), &object, &json);
}

/// The metadata of a built-in object is kept as it came, without annotations that are not shown.
fn as_it_is(json: &Json, rv: Option<ResourceVersion>) -> Option<Json> {
    let mut members = json.members()?.to_vec();
    if members.iter().filter(|(name, _)| name == "annotations").count() > 1 {
        return None;
    }
    for (name, value) in &mut members {
        match (name.as_str(), rv, value) {
            ("resourceVersion", Some(rv), value @ Json::Text(..)) => *value = Json::Text(rv.to_string(), true),
            ("annotations", _, Json::Object(annotations)) => {
                let before = annotations.len();
                annotations.retain(|(name, _)| name != UNSHOWN);
                if annotations.is_empty() && before > 0 {
                    *name = String::new();
                }
            }
            _ => {}
        }
    }
    members.retain(|(name, _)| {
        !name.is_empty() || !json.members().is_some_and(|all| all.iter().all(|(name, _)| !name.is_empty()))
    });
    Some(Json::Object(members))
}

fn ordered(json: &Json, rv: ResourceVersion) -> Option<Json> {
    let members = in_order(json, OBJECT_META)?.into_iter().map(|(name, value)| {
        let elements = |order| match &value {
            Json::Array(elements) => {
                elements.iter().map(|element| in_order(element, order).map(Json::Object)).collect::<Option<_>>()
            }
            _ => None,
        };
        let value = match &*name {
            "resourceVersion" => Json::Text(rv.to_string(), true),
            "ownerReferences" => Json::Array(elements(OWNER)?),
            "managedFields" => Json::Array(elements(MANAGED)?),
            _ => value,
        };
        Some((name, value))
    });
    // What is no ObjectMeta stands as it came, which is not compared.
    Some(Json::Object(members.collect::<Option<_>>()?))
}

fn in_order(json: &Json, order: &[(&str, bool)]) -> Option<Vec<(String, Json)>> {
    json.members()?;
    let is_empty = |value: &Json| match value {
        Json::Text(text, _) => text.is_empty(),
        Json::Number(number) => number == "0",
        Json::Array(elements) => elements.is_empty(),
        Json::Object(members) => members.is_empty(),
        Json::Null | Json::Bool(_) | Json::Deep(_) => false,
    };
    let shown = order.iter().filter_map(|(name, omits)| {
        let value = json.get(name).filter(|value| **value != Json::Null && !(*omits && is_empty(value)))?;
        Some(((*name).to_owned(), value.clone()))
    });
    Some(shown.collect())
}

/// The metadata of a custom resource is converted. It names the same object.
fn in_protobuf(form: &Arc<Form>, object: &Object, json: &Json) {
    let body = bytes(form.metadata_in_protobuf().object(object, None, Shape::PartialObjectMetadata));
    let (type_meta, message) = unwrapped(&body).expect("an envelope");
    assert_eq!(type_meta, ["meta.k8s.io/v1", "PartialObjectMetadata"]);
    let partial = Pod::decode(&*message).expect("a message");
    let [metadata] = &*partial.metadata else { panic!("{} times metadata", partial.metadata.len()) };
    let metadata = ObjectMeta::decode(&**metadata).expect("a message");
    assert_eq!(
        (&*text(&metadata.name), &metadata.resource_version[..]),
        (object.key.name(), &[object.rv.to_string().into_bytes()][..])
    );
    let is_object_meta = serde_json::from_slice::<serde_json::Value>(&raw(object).metadata()).is_ok()
        && json.members().is_some_and(|members| {
            members
                .iter()
                .all(|(name, _)| matches!(&**name, "name" | "namespace" | "uid" | "resourceVersion" | "labels"))
        })
        && ["name", "namespace", "uid", "resourceVersion", "labels"].iter().all(|name| json.once(name).is_ok());
    if is_object_meta {
        let (namespace, uid) = (text(&metadata.namespace), text(&metadata.uid));
        assert_eq!((&*namespace, &*uid), (object.key.namespace(), object.attributes.uid()));
        let labels: Vec<_> = metadata.labels.iter().map(|entry| (text(&entry.key), text(&entry.value))).collect();
        let known = object.attributes.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(labels, known.collect::<Vec<_>>());
    }
}
