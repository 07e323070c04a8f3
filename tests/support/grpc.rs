//! Typed calls that several suites make.

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use tonic::transport::{Channel, Endpoint};

pub(crate) async fn channel(url: &str) -> Channel {
    Endpoint::from_shared(url.to_owned()).unwrap().connect().await.unwrap()
}

pub(crate) async fn objects(url: &str) -> ObjectsClient<Channel> {
    ObjectsClient::new(channel(url).await)
}

/// A message as it stands on the wire, behind its length.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

pub(crate) fn resource(resource: &str) -> v1::Resource {
    v1::Resource { group: String::new(), version: "v1".into(), resource: resource.into() }
}

/// Everything of a core resource.
pub(crate) fn all(of: &str) -> v1::Selection {
    v1::Selection { resource: Some(resource(of)), ..Default::default() }
}

pub(crate) fn filtered(of: &str, filters: Vec<v1::Filter>) -> v1::Selection {
    v1::Selection { filters, ..all(of) }
}

pub(crate) fn namespace(namespace: &str) -> v1::Filter {
    v1::Filter { namespace: namespace.into(), ..Default::default() }
}

/// Of any state.
pub(crate) fn list_of(selection: v1::Selection) -> v1::ListRequest {
    v1::ListRequest { selection: Some(selection), ..Default::default() }
}

/// Of the whole state, then of everything.
pub(crate) fn watch_of(selection: v1::Selection) -> v1::WatchRequest {
    v1::WatchRequest { selection: Some(selection), ..Default::default() }
}

/// One of the watches of a stream.
pub(crate) fn add(watch_id: u64, watch: v1::WatchRequest, credit: Option<v1::Credit>) -> v1::SyncRequest {
    let add = v1::AddWatch { watch: Some(watch), credit };
    v1::SyncRequest { watch_id, action: Some(v1::sync_request::Action::Add(add)) }
}

/// A worker's first words.
pub(crate) fn join(group: &str, selections: Vec<v1::Selection>, capacity: u32) -> v1::WorkRequest {
    let join = v1::JoinGroup { group: group.to_owned(), selections, capacity };
    v1::WorkRequest { action: Some(v1::work_request::Action::Join(join)) }
}
