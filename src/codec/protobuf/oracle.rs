//! The messages of the Kubernetes API that the tests need, for another protobuf implementation. Fields that Go always
//! writes are `Some` even when they are empty.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TypeMeta {
    #[prost(string, optional, tag = "1")]
    pub api_version: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub kind: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Unknown {
    #[prost(message, optional, tag = "1")]
    pub type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub raw: Option<Vec<u8>>,
    #[prost(string, optional, tag = "3")]
    pub content_encoding: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub content_type: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ObjectMeta {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub generate_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub namespace: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub self_link: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub uid: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub resource_version: Option<String>,
    #[prost(int64, optional, tag = "7")]
    pub generation: Option<i64>,
    #[prost(message, optional, tag = "8")]
    pub creation_timestamp: Option<Time>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: std::collections::BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    pub annotations: std::collections::BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    pub owner_references: Vec<OwnerReference>,
    /// Messages that no test examines.
    #[prost(bytes = "vec", repeated, tag = "17")]
    pub managed_fields: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OwnerReference {
    #[prost(string, optional, tag = "1")]
    pub kind: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub uid: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Time {
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    pub nanos: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ListMeta {
    #[prost(string, optional, tag = "1")]
    pub self_link: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub resource_version: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub continue_token: Option<String>,
    #[prost(int64, optional, tag = "4")]
    pub remaining_item_count: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodSpec {
    #[prost(string, optional, tag = "8")]
    pub service_account_name: Option<String>,
    #[prost(string, optional, tag = "9")]
    pub service_account: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub node_name: Option<String>,
    #[prost(bool, optional, tag = "11")]
    pub host_network: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodIp {
    #[prost(string, optional, tag = "1")]
    pub ip: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodStatus {
    #[prost(string, optional, tag = "1")]
    pub phase: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub pod_ip: Option<String>,
    #[prost(message, repeated, tag = "12")]
    pub pod_ips: Vec<PodIp>,
    /// A field of a later version that the readers here do not know.
    #[prost(fixed64, optional, tag = "4000")]
    pub unheard_of: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Pod {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    pub spec: Option<PodSpec>,
    #[prost(message, optional, tag = "3")]
    pub status: Option<PodStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PodList {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<Pod>,
}

/// `PartialObjectMetadata` of `meta.k8s.io/v1`, and the form of a Pod in that shape.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Partial {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialList {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<Partial>,
}

/// `PartialObjectMetadataList` of `meta.k8s.io/v1beta1`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialListV1beta1 {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Partial>,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ListMeta>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RawExtension {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub raw: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchEvent {
    #[prost(string, optional, tag = "1")]
    pub kind: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusCause {
    #[prost(string, optional, tag = "1")]
    pub reason: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub field: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusDetails {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub group: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub kind: Option<String>,
    #[prost(message, repeated, tag = "4")]
    pub causes: Vec<StatusCause>,
    #[prost(int32, optional, tag = "5")]
    pub retry_after_seconds: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub uid: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ListMeta>,
    #[prost(string, optional, tag = "2")]
    pub status: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub message: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub reason: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub details: Option<StatusDetails>,
    #[prost(int32, optional, tag = "6")]
    pub code: Option<i32>,
}

/// A string field that Go always writes, even when it is empty.
#[expect(clippy::unnecessary_wraps, reason = "what the messages hold")]
pub(super) fn text(text: &str) -> Option<String> {
    Some(text.into())
}

pub(super) fn metadata(namespace: &str, name: &str, rv: u64, labels: &[(&str, &str)]) -> ObjectMeta {
    ObjectMeta {
        name: text(name),
        generate_name: text(""),
        namespace: text(namespace),
        self_link: text(""),
        uid: text(&format!("uid-{name}")),
        resource_version: text(&rv.to_string()),
        generation: Some(0),
        creation_timestamp: Some(Time { seconds: Some(1_700_000_000), nanos: Some(0) }),
        labels: labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        annotations: std::collections::BTreeMap::default(),
        owner_references: Vec::new(),
        managed_fields: Vec::new(),
    }
}

pub(super) fn pod(name: &str, rv: u64) -> Pod {
    Pod {
        metadata: Some(metadata("default", name, rv, &[("b", "2"), ("a", "1")])),
        spec: Some(PodSpec {
            service_account_name: text(""),
            service_account: text("robot"),
            node_name: text("node-1"),
            host_network: Some(true),
        }),
        status: Some(PodStatus {
            phase: text("Running"),
            pod_ip: text("10.0.0.9"),
            pod_ips: ["10.0.0.1", "fd00::1"].map(|ip| PodIp { ip: text(ip) }).into(),
            unheard_of: Some(7),
        }),
    }
}

pub(super) fn list_meta(rv: &str, token: &str, remaining: Option<i64>) -> ListMeta {
    ListMeta {
        self_link: text(""),
        resource_version: text(rv),
        continue_token: text(token),
        remaining_item_count: remaining,
    }
}

pub(super) fn envelope(api_version: &str, kind: &str, message: &impl Message) -> Vec<u8> {
    let unknown = Unknown {
        type_meta: Some(TypeMeta { api_version: text(api_version), kind: text(kind) }),
        raw: Some(message.encode_to_vec()),
        content_encoding: text(""),
        content_type: text(""),
    };
    [b"k8s\0".to_vec(), unknown.encode_to_vec()].concat()
}

pub(super) fn frame(kind: &str, object: Vec<u8>) -> Vec<u8> {
    let event = WatchEvent { kind: text(kind), object: Some(RawExtension { raw: Some(object) }) }.encode_to_vec();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}
