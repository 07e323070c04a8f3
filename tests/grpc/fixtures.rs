//! Clients and messages that several tests use.

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use crate::support::Through;

pub type Client = ObjectsClient<Channel>;

pub async fn channel(through: &Through) -> Channel {
    Endpoint::from_shared(through.url.clone()).unwrap().connect().await.unwrap()
}

pub async fn client(through: &Through) -> Client {
    ObjectsClient::new(channel(through).await)
}

pub fn resource(resource: &str) -> v1::Resource {
    v1::Resource { group: String::new(), version: "v1".into(), resource: resource.into() }
}

/// Everything of a core resource.
pub fn all(of: &str) -> v1::Selection {
    v1::Selection { resource: Some(resource(of)), ..Default::default() }
}

pub fn filtered(of: &str, filters: Vec<v1::Filter>) -> v1::Selection {
    v1::Selection { filters, ..all(of) }
}

pub fn labels(selector: &str) -> v1::Filter {
    v1::Filter { label_selector: selector.into(), ..Default::default() }
}

pub fn namespace(namespace: &str) -> v1::Filter {
    v1::Filter { namespace: namespace.into(), ..Default::default() }
}

pub fn index(index: v1::Index, values: &[&str]) -> v1::Filter {
    let key = Some(v1::index_term::Key::Index(index.into()));
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    v1::Filter { index: vec![v1::IndexTerm { key, values }], ..Default::default() }
}

pub fn consistent() -> v1::Consistency {
    v1::Consistency { bound: Some(v1::consistency::Bound::Consistent(true)), max_staleness: None }
}

pub fn config_map(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {}})
}

pub fn labelled(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": labels}, "data": {},
    })
}

/// A list, whole: its header and its objects.
pub async fn list(client: &mut Client, request: v1::ListRequest) -> (v1::ListHeader, Vec<v1::Object>) {
    let mut stream = client.list(request).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    let Some(v1::list_response::Part::Header(header)) = first.part else { panic!("no header: {first:?}") };
    let mut objects = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        let Some(v1::list_response::Part::Chunk(chunk)) = message.part else { panic!("no chunk: {message:?}") };
        assert!(!chunk.objects.is_empty());
        objects.extend(chunk.objects);
    }
    (header, objects)
}

pub fn keys(objects: &[v1::Object]) -> Vec<String> {
    let key = |object: &v1::Object| {
        let key = object.key.as_ref().unwrap();
        format!("{}/{}", key.namespace, key.name)
    };
    objects.iter().map(key).collect()
}
