//! Typed calls with every byte in sight.

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use informerd::grpc::pb::v1;
use prost::Message;

use crate::support::client::Client;
use crate::support::grpc::{filtered, framed, resource};
use crate::support::within;

pub(super) const UNAUTHENTICATED: &str = "16";
pub(super) const PERMISSION_DENIED: &str = "7";

pub(super) async fn send_as(
    client: &Client,
    path: &str,
    headers: &[(&str, &str)],
    request: &impl Message,
) -> Response<Incoming> {
    let body = framed(&request.encode_to_vec());
    let headers = [&[("content-type", "application/grpc"), ("te", "trailers")], headers].concat();
    let answer = client.send(Method::POST, &format!("/informerd.v1.{path}"), &headers, body).await;
    assert_eq!(answer.status(), 200, "{path}");
    answer
}

pub(super) async fn send(client: &Client, call: &str, request: &impl Message) -> Response<Incoming> {
    send_as(client, &format!("Objects/{call}"), &[], request).await
}

/// The status of a whole call, and everything that came before it.
pub(super) async fn status_as(
    client: &Client,
    path: &str,
    headers: &[(&str, &str)],
    request: &impl Message,
) -> (String, Bytes) {
    let (head, body) = send_as(client, path, headers, request).await.into_parts();
    let body = within("the whole call", body.collect()).await.unwrap();
    let status = body.trailers().unwrap_or(&head.headers)["grpc-status"].to_str().unwrap().to_owned();
    (status, body.to_bytes())
}

pub(super) async fn status(client: &Client, call: &str, request: &impl Message) -> (String, Bytes) {
    status_as(client, &format!("Objects/{call}"), &[], request).await
}

/// "0" once a stream has begun, or the status it ended with before.
pub(super) async fn begun(client: &Client, call: &str, request: &impl Message) -> String {
    begun_as(client, &format!("Objects/{call}"), request).await
}

pub(super) async fn begun_as(client: &Client, path: &str, request: &impl Message) -> String {
    let (head, mut body) = send_as(client, path, &[], request).await.into_parts();
    if let Some(status) = head.headers.get("grpc-status") {
        return status.to_str().unwrap().to_owned();
    }
    match within("the next frame of a call", body.frame()).await.unwrap().unwrap().into_trailers() {
        Ok(trailers) => trailers["grpc-status"].to_str().unwrap().to_owned(),
        Err(_) => "0".to_owned(),
    }
}

/// Reads a stream to its end.
pub(super) async fn trailers(stream: &mut Incoming) -> HeaderMap {
    loop {
        let frame = within("the next frame of a call", stream.frame()).await.expect("trailers before the end").unwrap();
        if let Ok(trailers) = frame.into_trailers() {
            return trailers;
        }
    }
}

/// The messages of a stream so far, and of one more frame of it.
pub(super) async fn message<M: Message + Default>(stream: &mut Incoming, pending: &mut Vec<u8>) -> M {
    loop {
        if let Some(head) = pending.first_chunk::<5>() {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if pending.len() >= 5 + length {
                let message = M::decode(&pending[5..5 + length]).unwrap();
                pending.drain(..5 + length);
                return message;
            }
        }
        let frame =
            within("the next frame of a call", stream.frame()).await.expect("a message before the end").unwrap();
        pending.extend_from_slice(&frame.into_data().expect("a message before the end"));
    }
}

pub(super) fn config_maps() -> Option<v1::Resource> {
    Some(resource("configmaps"))
}

pub(super) fn selection(namespaces: &[&str]) -> Option<v1::Selection> {
    named(namespaces, &[])
}

pub(super) fn named(namespaces: &[&str], names: &[&str]) -> Option<v1::Selection> {
    let filter = |namespace: &&str| v1::Filter {
        namespace: (*namespace).to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Default::default()
    };
    Some(filtered("configmaps", namespaces.iter().map(filter).collect()))
}

pub(super) fn get(namespace: &str, name: &str) -> v1::GetRequest {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    v1::GetRequest { resource: config_maps(), namespace, name, ..Default::default() }
}

pub(super) fn list(namespaces: &[&str]) -> v1::ListRequest {
    v1::ListRequest { selection: selection(namespaces), ..Default::default() }
}

pub(super) fn watch(namespaces: &[&str]) -> v1::WatchRequest {
    v1::WatchRequest { selection: selection(namespaces), ..Default::default() }
}
