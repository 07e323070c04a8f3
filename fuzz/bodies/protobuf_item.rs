//! One object in protobuf, against the same message as prost reads it; its owners, and what is left of it without parts of
//! its metadata.
//!
//! What may be refused, and why, is listed in `messages`. Of a selectable field that occurs twice, the first counts.

use std::collections::BTreeMap;

use informerd::codec::protobuf::{Form, Without, event_frame, has_owner, object_bytes, parse_item};
use informerd::codec::{Shape, has_owner as object_has_owner};
use informerd::meta::{EventType, Object, ResourceVersion};
use prost::Message;

use super::input::measured;
use super::messages::{
    Entry, ObjectMeta, Owner, Parts, Pod, PodFields, PodSpec, PodStatus, Unknown, Why, assert_listed, decimal,
    is_of_key, text, unwrapped,
};
use super::pods::{bytes, field, raw, table};

pub fn check(data: &[u8]) {
    match (measured(data.len(), || parse_item(data, table())), Expected::of(data)) {
        (Ok(object), Ok(expected)) => {
            expected.compare(&object, data);
            written(&object, data);
            owners(&object);
        }
        (Ok(object), Err(why)) => panic!("{object:?}, in spite of {why:?}"),
        (Err(error), expected) => assert_listed(&error, Expected::why(expected)),
    }
    parts(data);
}

/// What an object says, by another reader.
#[derive(Debug)]
pub struct Expected {
    metadata: ObjectMeta,
    rv: u64,
    pod: Pod,
    /// What selectors look at, where prost can read it.
    pub fields: Option<(PodFields, PodSpec, PodStatus)>,
}

impl Expected {
    pub fn of(message: &[u8]) -> Result<Self, Why> {
        let pod = Pod::decode(message)?;
        let [metadata] = &*pod.metadata else { return Err(Why::Metadata) };
        let metadata = ObjectMeta::decode(&**metadata)?;
        let [rv] = &*metadata.resource_version else { return Err(Why::Revision) };
        let rv = decimal(rv).ok_or(Why::Revision)?;
        let (name, namespace) = (text(&metadata.name), text(&metadata.namespace));
        if name.is_empty() || !is_of_key(&name) || !is_of_key(&namespace) {
            return Err(Why::Key);
        }
        Ok(Self { metadata, rv, pod, fields: fields(message) })
    }

    /// What is wrong with it, if anything is.
    pub fn why(expected: Result<Self, Why>) -> Option<Why> {
        expected.map_or_else(Some, |expected| expected.fields.is_none().then_some(Why::Fields))
    }

    pub fn compare(&self, object: &Object, message: &[u8]) {
        let metadata = &self.metadata;
        let (name, namespace) = (text(&metadata.name), text(&metadata.namespace));
        assert_eq!((object.key.namespace(), object.key.name()), (&*namespace, &*name));
        assert_eq!((object.rv.get(), object.attributes.uid()), (self.rv, &*text(&metadata.uid)));
        let labels: BTreeMap<_, _> = metadata.labels.iter().map(|entry| (&*entry.key, &*entry.value)).collect();
        let labels: Vec<_> = labels.into_iter().map(|(key, value)| (text(key), text(value))).collect();
        let known = object.attributes.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(known.collect::<Vec<_>>(), labels);
        let raw = raw(object);
        assert_eq!((&raw.item()[..], Some(&raw.metadata()[..])), (message, self.pod.metadata.first().map(|m| &m[..])));
        assert_eq!(decimal(&raw.slice(raw.rv_range())), Some(self.rv));
        self.compare_fields(object);
    }

    fn compare_fields(&self, object: &Object) {
        let Some((_, spec, status)) = &self.fields else { return };
        let first = |values: &[Vec<u8>]| values.first().map(|value| text(value)).unwrap_or_default();
        for (label, value) in [
            ("spec.nodeName", first(&spec.node_name)),
            ("spec.restartPolicy", first(&spec.restart_policy)),
            ("spec.schedulerName", first(&spec.scheduler_name)),
            ("status.phase", first(&status.phase)),
            ("status.nominatedNodeName", first(&status.nominated_node_name)),
        ] {
            assert_eq!(field(object, label), value, "{label}");
        }
        let or = |one: String, other: &[Vec<u8>]| if one.is_empty() { first(other) } else { one };
        let ip = status.pod_ips.first().map(|ip| first(&ip.ip)).unwrap_or_default();
        assert_eq!(field(object, "status.podIP"), or(ip, &status.pod_ip));
        let account = or(first(&spec.service_account_name), &spec.service_account);
        assert_eq!(field(object, "spec.serviceAccountName"), account);
        if spec.host_network.is_none() {
            assert_eq!(field(object, "spec.hostNetwork"), "false");
        }
    }
}

/// prost merges a message that occurs twice, where informerd takes the first.
fn fields(message: &[u8]) -> Option<(PodFields, PodSpec, PodStatus)> {
    let fields = PodFields::decode(message).ok()?;
    let spec = PodSpec::decode(fields.spec.first().map_or(&[][..], |spec| spec)).ok()?;
    let status = PodStatus::decode(fields.status.first().map_or(&[][..], |status| status)).ok()?;
    Some((fields, spec, status))
}

/// What is sent to the clients is what came, but for its resourceVersion where that is replaced.
fn written(object: &Object, message: &[u8]) {
    let form = Form::new("v1", "Pod", "PodList");
    let written =
        |object: &Object, rv, shape| unwrapped(&bytes(object_bytes(&form, object, rv, shape))).expect("an envelope");
    let (type_meta, kept) = written(object, None, Shape::Full);
    assert_eq!((type_meta, &kept[..]), (["v1", "Pod"].map(str::to_owned), message));
    for rv in [1, u64::MAX] {
        let (_, message) = written(object, Some(ResourceVersion(rv)), Shape::Full);
        let again = parse_item(&message, table()).expect("an object");
        assert_eq!((&again.key, again.rv.get(), &again.attributes), (&object.key, rv, &object.attributes));
        let back = written(&again, Some(object.rv), Shape::Full);
        if raw(object).slice(raw(object).rv_range()) == object.rv.to_string() {
            assert_eq!(back.1, kept);
        }
    }
    for shape in [Shape::PartialObjectMetadata, Shape::PartialObjectMetadataV1beta1] {
        let partial = Pod::decode(&*written(object, None, shape).1).expect("a message");
        assert_eq!(partial.metadata, [raw(object).metadata()]);
        assert_eq!(partial.encoded_len(), raw(object).metadata_range().end, "nothing but metadata");
    }
    let frame = bytes(event_frame(&form, EventType::Added, object, None, Shape::Full));
    assert_eq!(frame.first_chunk::<4>().map(|len| u32::from_be_bytes(*len) as usize), Some(frame.len() - 4));
}

fn owners(object: &Object) {
    let Ok(parts) = Parts::decode(&*raw(object).metadata()) else { return };
    let owners = parts.owner_references.iter().map(|owner| Owner::decode(&**owner)).collect::<Result<Vec<_>, _>>();
    let Ok(owners) = owners else { return };
    let uids: Vec<_> = owners.iter().flat_map(|owner| &owner.uid).map(|uid| text(uid)).collect();
    let mut asked = Vec::new();
    assert!(!object_has_owner(object, |uid| {
        asked.push(uid.to_owned());
        false
    }));
    if has_owner(&raw(object).metadata(), &mut |_| false).is_ok() {
        assert_eq!(asked, uids);
    }
}

/// Whether prost reads all annotations.
fn annotations(message: &[u8]) -> Result<(), Why> {
    for metadata in Pod::decode(message)?.metadata {
        for entry in Parts::decode(&*metadata)?.annotations {
            Entry::decode(&*entry)?;
        }
    }
    Ok(())
}

/// Without managed fields and one annotation, everything else is as it was.
fn parts(data: &[u8]) {
    let without = Without { managed_fields: true, annotations: &["a"] };
    let unknown = Unknown { type_meta: vec![Vec::new()], raw: vec![data.to_vec()], ..Unknown::default() };
    let body = [b"k8s\0", &*unknown.encode_to_vec()].concat();
    let rest = without.apply(&body).map_err(|error| assert_listed(&error, annotations(data).err()));
    let Ok(rest) = rest else { return };
    assert!(rest.len() <= body.len() + 8, "it grew");
    let (Ok((_, before)), Ok((_, after))) = (unwrapped(&body), unwrapped(&rest)) else { panic!("no envelope") };
    let fields = |message: &[u8]| PodFields::decode(message).ok();
    assert_eq!(fields(&before), fields(&after));
    let (Ok(before), Ok(after)) = (Pod::decode(&*before), Pod::decode(&*after)) else { return };
    for (before, after) in before.metadata.iter().zip(&after.metadata) {
        assert_eq!(ObjectMeta::decode(&**before).ok(), ObjectMeta::decode(&**after).ok());
        let Ok(mut before) = Parts::decode(&**before) else { continue };
        before.managed_fields.clear();
        before.annotations.retain(|entry| Entry::decode(&**entry).is_ok_and(|entry| entry.key != b"a"));
        assert_eq!(Some(before), Parts::decode(&**after).ok());
    }
}
