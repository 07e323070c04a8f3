//! The informers as clients see them.

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::cache_client::CacheClient;
use informerd::grpc::pb::v1::objects_client::ObjectsClient;
use tonic::Code;

use super::fixtures::{all, channel, config_map, list, resource};
use crate::support::Through;
use crate::support::within;

#[tokio::test(flavor = "multi_thread")]
async fn informers_are_listed_followed_and_asked_for_their_freshness() {
    let (server, through, _) = Through::simulated([config_map("n", "a")], "").await;
    let channel = channel(&through).await;
    let mut cache = CacheClient::new(channel.clone());
    let ask = || v1::FreshnessRequest { resource: Some(resource("configmaps")) };
    assert_eq!(cache.freshness(ask()).await.unwrap_err().code(), Code::NotFound);
    let mut changes = cache.watch_informers(v1::WatchInformersRequest::default()).await.unwrap().into_inner();
    let known = |changed: &v1::WatchInformersResponse| {
        changed.informers.iter().find(|informer| informer.resource == Some(resource("configmaps"))).cloned()
    };
    let first = within("the next change of the informers", changes.message()).await.unwrap().unwrap();
    assert!(known(&first).is_none() && first.stopped.is_empty());

    list(&mut ObjectsClient::new(channel), v1::ListRequest { selection: Some(all("configmaps")), consistency: None })
        .await;
    let listed = cache.list_informers(v1::ListInformersRequest {}).await.unwrap().into_inner().informers;
    let [informer] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((informer.resource.clone(), informer.objects, informer.synced), (Some(resource("configmaps")), 1, true));
    assert_eq!(informer.resource_version, server.revision().to_string());
    assert!(informer.bytes > 0 && informer.oldest_resource_version.parse::<u64>().is_ok(), "{informer:?}");
    let fresh = cache.freshness(ask()).await.unwrap().into_inner();
    assert!(fresh.upstream_silence.unwrap().seconds < 600);
    assert_eq!((fresh.synced, fresh.resource_version), (true, server.revision().to_string()));
    while !known(&within("the next change of the informers", changes.message()).await.unwrap().unwrap())
        .is_some_and(|informer| informer.synced)
    {}

    let written = server.create(config_map("n", "b")).unwrap().to_string();
    while known(&within("the next change of the informers", changes.message()).await.unwrap().unwrap())
        .is_none_or(|informer| informer.resource_version != written)
    {}

    // The first list is none after the first.
    assert_eq!((informer.relists, informer.events), (0, 0));
    server.faults().compact();
    server.faults().expire_watches(None);
    while known(&within("the next change of the informers", changes.message()).await.unwrap().unwrap())
        .is_none_or(|informer| informer.relists != 1)
    {}
}
