//! The typed calls by the same rights as HTTP: who may list over there may list here, and a stream ends with its right.

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use informerd::grpc::pb::v1;
use prost::Message;
use tokio::time::Instant;

use crate::support::client::Client;
use crate::world::World;

const UNAUTHENTICATED: &str = "16";
const PERMISSION_DENIED: &str = "7";

async fn send(client: &Client, call: &str, request: &impl Message) -> Response<Incoming> {
    let request = request.encode_to_vec();
    let body = [&[0][..], &u32::try_from(request.len()).unwrap().to_be_bytes(), &request].concat();
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let answer = client.send(Method::POST, &format!("/informerd.v1.Objects/{call}"), &headers, body).await;
    assert_eq!(answer.status(), 200, "{call}");
    answer
}

/// The status of a whole call, and everything that came before it.
async fn status(client: &Client, call: &str, request: &impl Message) -> (String, Bytes) {
    let (head, body) = send(client, call, request).await.into_parts();
    let body = body.collect().await.unwrap();
    let status = body.trailers().unwrap_or(&head.headers)["grpc-status"].to_str().unwrap().to_owned();
    (status, body.to_bytes())
}

fn config_maps() -> Option<v1::Resource> {
    Some(v1::Resource { group: String::new(), version: "v1".into(), resource: "configmaps".into() })
}

fn selection(namespaces: &[&str]) -> Option<v1::Selection> {
    let filter = |namespace: &&str| v1::Filter { namespace: (*namespace).to_owned(), ..Default::default() };
    Some(v1::Selection {
        resource: config_maps(),
        filters: namespaces.iter().map(filter).collect(),
        ..Default::default()
    })
}

fn get(namespace: &str, name: &str) -> v1::GetRequest {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    v1::GetRequest { resource: config_maps(), namespace, name, ..Default::default() }
}

fn list(namespaces: &[&str]) -> v1::ListRequest {
    v1::ListRequest { selection: selection(namespaces), ..Default::default() }
}

fn watch(namespaces: &[&str]) -> v1::WatchRequest {
    v1::WatchRequest { selection: selection(namespaces), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_same_rights() {
    let world = World::start("").await;
    world.settled().await;
    world.warm(&["/api/v1/configmaps"]).await;
    let by = async |account: &str| world.through(Some(&world.token(account, &[]).await));
    let (space, names, lister) = (by("space").await, by("names").await, by("lister").await);
    let nobody = by("nothing").await;

    for (what, client, name, wanted) in [
        ("space", &space, ("a", "one"), "0"),
        ("space", &space, ("b", "one"), PERMISSION_DENIED),
        ("names", &names, ("a", "one"), "0"),
        ("names", &names, ("a", "two"), PERMISSION_DENIED),
        ("lister", &lister, ("b", "one"), PERMISSION_DENIED),
        ("nobody", &nobody, ("a", "one"), PERMISSION_DENIED),
        // Whether there is such an object is not told either.
        ("nobody", &nobody, ("a", "none"), PERMISSION_DENIED),
    ] {
        let (code, body) = status(client, "Get", &get(name.0, name.1)).await;
        assert_eq!((&*code, body.is_empty()), (wanted, wanted != "0"), "get: {what} {name:?}");
    }
    for (what, client, namespaces, wanted) in [
        ("space", &space, &["a"][..], "0"),
        ("space", &space, &["b"], PERMISSION_DENIED),
        ("space", &space, &[""], PERMISSION_DENIED),
        ("space", &space, &[], PERMISSION_DENIED),
        // Every part of a union is asked about.
        ("space", &space, &["a", "b"], PERMISSION_DENIED),
        ("lister", &lister, &["b"], "0"),
        ("names", &names, &["a"], PERMISSION_DENIED),
        ("nobody", &nobody, &["a"], PERMISSION_DENIED),
    ] {
        let (code, body) = status(client, "List", &list(namespaces)).await;
        assert_eq!((&*code, body.is_empty()), (wanted, wanted != "0"), "list: {what} {namespaces:?}");
        if wanted != "0" || what == "lister" {
            let (code, body) = status(client, "Watch", &watch(namespaces)).await;
            assert_eq!((&*code, body.is_empty()), (PERMISSION_DENIED, true), "watch: {what} {namespaces:?}");
        }
    }
    for client in [world.through(None), world.through(Some("wrong-token"))] {
        assert_eq!(status(&client, "Get", &get("a", "one")).await.0, UNAUTHENTICATED);
        assert_eq!(status(&client, "List", &list(&["a"])).await.0, UNAUTHENTICATED);
        assert_eq!(status(&client, "Watch", &watch(&["a"])).await.0, UNAUTHENTICATED);
    }

    // A right that goes ends the stream that was opened by it.
    let mut stream = send(&space, "Watch", &watch(&["a"])).await.into_body();
    assert!(stream.frame().await.unwrap().unwrap().is_data(), "it began");
    let started = Instant::now();
    world.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/space").await;
    let trailers = loop {
        let frame = stream.frame().await.expect("trailers before the end").unwrap();
        if let Ok(trailers) = frame.into_trailers() {
            break trailers;
        }
    };
    eprintln!("revoked by role binding: the gRPC stream ended after {:?}", started.elapsed());
    assert_eq!(trailers["grpc-status"], PERMISSION_DENIED);
    assert_eq!(status(&space, "Watch", &watch(&["a"])).await.0, PERMISSION_DENIED);
}
