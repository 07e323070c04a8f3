//! Lists in chunks, and resources that are named without a version. `real` and `waiting::access::unions` have the selections,
//! the shapes and the errors.

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::cache_client::CacheClient;
use informerd::grpc::pb::v1::work_request::Action;
use prost::Message;
use serde_json::json;
use tonic::Code;

use super::fixtures::{
    Client, Frames, all, channel, config_map, get_of, keys, list, list_of, resource, simulated, watch_of,
};
use super::queue::Worker;
use crate::support::{Through, within};

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_chunks_of_one_state() {
    let objects = std::array::from_fn(|n| {
        let mut object = config_map("a", &format!("n{n:02}"));
        object["data"] = json!({ "x": "y".repeat(100_000) });
        object
    });
    let (server, _through, mut client) = simulated::<40>(objects, "").await;
    let mut stream = client.list(list_of(all("configmaps"))).await.unwrap().into_inner();
    let header = within("the next part of the list", stream.message()).await.unwrap().unwrap();
    // What comes later is of no state before it.
    server.create(config_map("a", "late")).unwrap();
    let (mut chunks, mut names) = (0, Vec::new());
    while let Some(message) = within("the next part of the list", stream.message()).await.unwrap() {
        assert!(message.encoded_len() <= 1 << 20, "{}", message.encoded_len());
        let Some(v1::list_response::Part::Chunk(chunk)) = message.part else { panic!() };
        names.extend(keys(&chunk.objects));
        chunks += 1;
    }
    assert_eq!((chunks, names.len()), (4, 40));
    assert!(names.is_sorted());
    let Some(v1::list_response::Part::Header(header)) = header.part else { panic!() };
    assert!(!header.resume_token.is_empty() && header.resource_version.parse::<u64>().unwrap() > 0);
}

fn without_version(of: &str) -> v1::Selection {
    v1::Selection { resource: Some(v1::Resource { version: String::new(), ..resource(of) }), ..all(of) }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_without_a_version_are_those_that_the_apiserver_prefers() {
    let (_server, through, _) = Through::simulated([config_map("a", "one")], "").await;
    let channel = channel(&through).await;
    let mut client = Client::new(channel.clone());

    let get = get_of(without_version("configmaps").resource.unwrap(), "a", "one");
    assert_eq!(client.get(get).await.unwrap().into_inner().object.unwrap().key.unwrap().name, "one");
    let (header, objects) = list(&mut client, list_of(without_version("configmaps"))).await;
    assert_eq!(objects.len(), 1);

    // It is the same selection as the one with the version: its tokens are good for both.
    for selection in [without_version("configmaps"), all("configmaps")] {
        Frames::resumed(&mut client, selection, &header.resume_token).await;
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
