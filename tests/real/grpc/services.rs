//! What surrounds the reads: health, deadlines, compression, what is not there.

use std::time::Duration;

use http_body_util::BodyExt;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use informerd_sim::{Effect, Fault};
use prost::Message;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::fixtures::{all, channel, config_map, list, list_of, watch_of};
use crate::support::client::Client as Http;
use crate::support::grpc::framed;
use crate::support::{Through, within};

#[tokio::test(flavor = "multi_thread")]
async fn health_of_the_daemon_and_of_one_resource() {
    let (_server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    through.ready().await;
    let channel = channel(&through).await;
    let mut health = HealthClient::new(channel.clone());
    let ask = |service: &str| HealthCheckRequest { service: service.into() };
    for service in ["", "informerd.v1.Objects"] {
        let status = health.check(ask(service)).await.unwrap().into_inner().status;
        assert_eq!(status, ServingStatus::Serving as i32, "{service:?}");
    }
    let of_resource = "informerd.v1.Objects/configmaps";
    assert_eq!(health.check(ask(of_resource)).await.unwrap_err().code(), Code::NotFound);
    let mut watch = health.watch(ask(of_resource)).await.unwrap().into_inner();
    let mut next = async || within("the next answer", watch.message()).await.unwrap().unwrap().status;
    assert_eq!(next().await, ServingStatus::ServiceUnknown as i32);
    list(&mut ObjectsClient::new(channel), list_of(all("configmaps"))).await;
    assert_eq!(next().await, ServingStatus::Serving as i32);
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_and_grpc_share_a_port() {
    let (_server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    let channel = channel(&through).await;
    // Compressed because the client compresses.
    let mut gzip = ObjectsClient::new(channel.clone())
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let request = list_of(all("configmaps"));
    let answer = gzip.list(request.clone()).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
    let mut able = ObjectsClient::new(channel).accept_compressed(CompressionEncoding::Gzip);
    let answer = able.list(request.clone()).await.unwrap();
    assert!(answer.metadata().get("grpc-encoding").is_none());
    assert_eq!(list(&mut gzip, request).await.1.len(), 1);
    let http = Http::http2(&through.url);
    assert_eq!(http.json("/api/v1/configmaps?resourceVersion=0").await["items"].as_array().unwrap().len(), 1);
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let answer = http.request(http::Method::POST, "/informerd.v1.Objects/Nothing", &headers, "").await;
    assert_eq!(answer.headers["grpc-status"], "12");
    assert!(answer.headers.contains_key("grpc-status-details-bin"), "whoever has no reason tries again for ever");
    // Larger than any request may be, and no message at all.
    let large = [&[0, 0, 80, 0, 1][..], &vec![0; (5 << 20) + 1]].concat();
    for message in [large, b"\0\0\0\0\x01\xff".to_vec()] {
        let answer = http.request(http::Method::POST, "/informerd.v1.Objects/List", &headers, message).await;
        assert_eq!(answer.headers["grpc-status"], "3", "{:?}", answer.headers);
        assert!(answer.headers.contains_key("grpc-status-details-bin"));
    }
}

/// As it stands on the wire: a client of tonic would end a call by itself.
#[tokio::test(flavor = "multi_thread")]
async fn calls_end_at_their_deadlines() {
    let (server, through, _) = Through::simulated([config_map("a", "one")], "notSynced: {wait: 20s}\n").await;
    through.ready().await;
    let http = Http::http2(&through.url);
    http.json("/api/v1/configmaps?resourceVersion=0").await;
    let call = async |method: &str, request: Vec<u8>, timeout: &str| {
        let headers = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", timeout)];
        let path = format!("/informerd.v1.Objects/{method}");
        let (head, body) = http.send(http::Method::POST, &path, &headers, framed(&request)).await.into_parts();
        let body = within("the call ends", body.collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap_or(&head.headers)["grpc-status"], "4", "{method}");
        body.to_bytes()
    };
    let frames = call("Watch", watch_of(all("configmaps")).encode_to_vec(), "3S").await;
    // What came before the deadline came whole.
    let first = u32::from_be_bytes(frames[1..5].try_into().unwrap()) as usize;
    let first = v1::WatchResponse::decode(&frames[5..5 + first]).unwrap().frame;
    assert!(matches!(first, Some(v1::watch_response::Frame::Started(_))), "{first:?}");
    server.faults().add(Fault::always(Effect::Delay(Duration::from_secs(60))).on("services"));
    call("List", list_of(all("services")).encode_to_vec(), "300m").await;
}
