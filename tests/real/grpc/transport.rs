//! The same port, whatever it is: TLS with ALPN, a Unix socket, plain HTTP/2 with prior knowledge.

use std::time::Duration;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd_sim::{Effect, Fault};
use prost::Message;
use tonic::transport::{Endpoint, Uri};

use super::fixtures::{all, config_map, keys, list};
use crate::support::Through;
use crate::support::client::{Answer, Client as Http};

fn everything() -> v1::ListRequest {
    v1::ListRequest { selection: Some(all("configmaps")), ..Default::default() }
}

/// A call as it stands on the wire.
async fn call(http: &Http, headers: &[(&str, &str)]) -> Answer {
    let request = everything().encode_to_vec();
    let body = [&[0][..], &u32::try_from(request.len()).unwrap().to_be_bytes(), &request].concat();
    let headers = [&[("content-type", "application/grpc"), ("te", "trailers")], headers].concat();
    http.request_bytes(http::Method::POST, "/informerd.v1.Objects/List", &headers, body.into()).await
}

/// The messages of an answer that is not compressed.
fn messages<M: Message + Default>(mut body: Bytes) -> Vec<M> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
        messages.push(M::decode(body.slice(5..5 + length)).unwrap());
        body = body.split_off(5 + length);
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_by_alpn() {
    let (_server, through, _) =
        Through::simulated([config_map("a", "one")], "listen: [\"https://127.0.0.1:0\"]\n").await;
    let http = Http::tls_anonymous(&through.url, through.daemon.ca_file.as_ref().unwrap());
    let answer = call(&http, &[]).await;
    assert_eq!((answer.status.as_u16(), &answer.headers["content-type"]), (200, &"application/grpc".parse().unwrap()));
    assert_eq!(messages::<v1::ListResponse>(answer.body).len(), 2, "a header and a chunk");
    // And REST beside it.
    assert_eq!(http.json("/api/v1/configmaps?resourceVersion=0").await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_unix_socket() {
    let (_server, through, _) =
        Through::simulated([config_map("a", "one")], "listen: [\"unix://STATE_DIR/grpc.sock\"]\n").await;
    let path = through.url.strip_prefix("unix://").unwrap().to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await.unwrap();
    assert_eq!(keys(&list(&mut ObjectsClient::new(channel), everything()).await.1), ["a/one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_at_its_deadline() {
    let (server, through, _) = Through::simulated([], "notSynced: {wait: 20s}\n").await;
    through.ready().await;
    server.faults().add(Fault::always(Effect::Delay(Duration::from_secs(60))).on("configmaps"));
    // A client of tonic would end the call by itself.
    let answer = call(&Http::http2(&through.url), &[("grpc-timeout", "300m")]).await;
    assert_eq!(answer.headers["grpc-status"], "4");
}

/// What came before the deadline came whole, and what ends the stream is its status.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_at_its_deadline() {
    let (_server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    through.ready().await;
    let http = Http::http2(&through.url);
    let request = v1::WatchRequest { selection: Some(all("configmaps")), ..Default::default() }.encode_to_vec();
    let body = [&[0][..], &u32::try_from(request.len()).unwrap().to_be_bytes(), &request].concat();
    let headers = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "1500m")];
    let answer = http.send(http::Method::POST, "/informerd.v1.Objects/Watch", &headers, body).await;
    assert_eq!(answer.status(), 200);
    let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "4");
    let frames = messages::<v1::WatchResponse>(body.to_bytes());
    assert!(matches!(frames[0].frame, Some(v1::watch_response::Frame::Started(_))), "{frames:?}");
}
