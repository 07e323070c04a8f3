//! Resources that are named without a version.

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::cache_client::CacheClient;
use informerd::grpc::pb::v1::work_request::Action;
use tonic::Code;

use super::fixtures::{Client, Frame, all, channel, config_map, list, list_of, resource, resume, watch_of};
use super::queue::Worker;
use crate::support::Through;
use crate::support::within;

fn without_version(of: &str) -> v1::Selection {
    v1::Selection { resource: Some(v1::Resource { version: String::new(), ..resource(of) }), ..all(of) }
}

#[tokio::test(flavor = "multi_thread")]
async fn are_those_that_the_apiserver_prefers() {
    let (_server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    let channel = channel(&through).await;
    let mut client = Client::new(channel.clone());

    let get = v1::GetRequest {
        resource: without_version("configmaps").resource,
        namespace: "a".into(),
        name: "one".into(),
        ..Default::default()
    };
    assert_eq!(client.get(get).await.unwrap().into_inner().object.unwrap().key.unwrap().name, "one");
    let (header, objects) = list(&mut client, list_of(without_version("configmaps"))).await;
    assert_eq!(objects.len(), 1);

    // It is the same selection as the one with the version: its tokens are good for both.
    for selection in [without_version("configmaps"), all("configmaps")] {
        let mut watch = client.watch(resume(selection, &header.resume_token)).await.unwrap().into_inner();
        let first = within("the watch begins", watch.message()).await.unwrap().unwrap().frame;
        assert!(matches!(&first, Some(Frame::Started(started)) if started.resumed), "{first:?}");
    }

    // So are those of workers, whose answers need no version either.
    let named = Worker::join(&channel, "g", all("configmaps"), 1).await.unwrap();
    let mut worker = Worker::join(&channel, "g", without_version("configmaps"), 1).await.unwrap();
    drop(named);
    let v1::Item { r#ref, attempt, .. } = worker.item().await;
    let item = r#ref.unwrap();
    assert_eq!(item.resource, Some(resource("configmaps")));
    worker.say(Action::Retry(v1::ItemRef { resource: without_version("configmaps").resource, ..item })).await;
    assert_eq!(worker.item().await.attempt, attempt + 1);

    let freshness = v1::FreshnessRequest { resource: without_version("configmaps").resource };
    assert!(CacheClient::new(channel).freshness(freshness).await.unwrap().into_inner().synced);

    let refused = client.watch(watch_of(without_version("configmap"))).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::NotFound, "the apiserver has no resource configmap"));
}
