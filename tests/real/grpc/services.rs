//! What surrounds the reads: health, reflection, deadlines, compression, what is not there.

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::fixtures::{all, channel, config_map, list};
use crate::support::Through;
use crate::support::client::Client as Http;
use crate::support::within;

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
    assert_eq!(
        within("the next answer of the stream", watch.message()).await.unwrap().unwrap().status,
        ServingStatus::ServiceUnknown as i32
    );
    list(
        &mut ObjectsClient::new(channel),
        v1::ListRequest { selection: Some(all("configmaps")), ..Default::default() },
    )
    .await;
    assert_eq!(
        within("the next answer of the stream", watch.message()).await.unwrap().unwrap().status,
        ServingStatus::Serving as i32
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_names_the_services() {
    let (_server, through, _) = Through::simulated([], "").await;
    let mut client = ServerReflectionClient::new(channel(&through).await);
    let ask = |message| ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let asked = tokio_stream::iter([
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol("informerd.v1.Objects.Watch".into())),
    ]);
    let mut answers = client.server_reflection_info(asked).await.unwrap().into_inner();
    let first =
        within("the next answer of the stream", answers.message()).await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(services) = first else { panic!("{first:?}") };
    let names: Vec<_> = services.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"informerd.v1.Objects") && names.contains(&"grpc.health.v1.Health"), "{names:?}");
    let second =
        within("the next answer of the stream", answers.message()).await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(second, MessageResponse::FileDescriptorResponse(_)), "{second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_and_grpc_share_a_port() {
    let (_server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    let channel = channel(&through).await;
    // Compressed because the client compresses.
    let mut gzip = ObjectsClient::new(channel.clone())
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let request = v1::ListRequest { selection: Some(all("configmaps")), ..Default::default() };
    let answer = gzip.list(request.clone()).await.unwrap();
    assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
    let mut able = ObjectsClient::new(channel).accept_compressed(CompressionEncoding::Gzip);
    let answer = able.list(request).await.unwrap();
    assert!(answer.metadata().get("grpc-encoding").is_none());
    assert_eq!(
        list(&mut gzip, v1::ListRequest { selection: Some(all("configmaps")), ..Default::default() }).await.1.len(),
        1
    );
    let http = Http::http2(&through.url);
    assert_eq!(http.json("/api/v1/configmaps?resourceVersion=0").await["items"].as_array().unwrap().len(), 1);
    let headers = [("content-type", "application/grpc"), ("te", "trailers")];
    let answer = http.request(http::Method::POST, "/informerd.v1.Objects/Nothing", &headers, "").await;
    assert_eq!(answer.headers["grpc-status"], "12");
    assert!(answer.headers.contains_key("grpc-status-details-bin"), "whoever has no reason tries again for ever");
    // Larger than any request may be, and no message at all.
    let large = [&[0, 0, 80, 0, 1][..], &vec![0; (5 << 20) + 1]].concat();
    for message in [large, b"\0\0\0\0\x01\xff".to_vec()] {
        let answer =
            http.request_bytes(http::Method::POST, "/informerd.v1.Objects/List", &headers, message.into()).await;
        assert_eq!(answer.headers["grpc-status"], "3", "{:?}", answer.headers);
        assert!(answer.headers.contains_key("grpc-status-details-bin"));
    }
}
