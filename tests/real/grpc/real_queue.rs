//! Messages of a work queue, and the state of informers, before a real kube-apiserver. `programs::examples` has workers that
//! vanish.

use http::Method;
use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::cache_client::CacheClient;

use super::fixtures::{channel, filtered, labels};
use super::queue::{Worker, rv};
use super::real::{object, world};
use crate::support::client;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_messages_gets_messages() {
    let World { cluster: _cluster, daemon, direct, .. } = world().await;
    let first = client::rv(&direct.write(Method::POST, "/api/v1/namespaces/a/configmaps", &object(0, 0)).await);
    let channel = channel(&daemon).await;
    let of = |encoding: v1::Encoding| v1::Selection {
        encoding: encoding.into(),
        ..filtered("configmaps", vec![labels("app=x")])
    };
    let mut worker = Worker::join(&channel, "g", of(v1::Encoding::KubeProtobuf), 1).await.unwrap();
    let item = worker.item().await;
    assert_eq!((rv(&item), item.encoding()), (first, v1::Encoding::KubeProtobuf));
    assert!(item.object.as_ref().unwrap().object.starts_with(b"k8s\0"));
    let mut cache = CacheClient::new(channel.clone());
    let listed = cache.list_informers(v1::ListInformersRequest {}).await.unwrap().into_inner();
    let [informer] = &listed.informers[..] else { panic!("{listed:?}") };
    // The apiserver makes objects of its own.
    assert!(informer.encoding() == v1::Encoding::KubeProtobuf && informer.objects >= 1, "{informer:?}");
    let [oldest, newest] =
        [&informer.oldest_resource_version, &informer.resource_version].map(|rv| rv.parse::<u64>().unwrap());
    assert!(informer.synced && informer.bytes > 0 && oldest <= newest && newest >= first, "{informer:?}");
    assert_eq!(informer.relists, 0, "the first list is none after the first");
    // Another group takes what is held.
    let mut other = Worker::join(&channel, "h", of(v1::Encoding::Any), 1).await.unwrap();
    let theirs = other.item().await;
    assert_eq!((theirs.encoding(), &theirs.object), (v1::Encoding::KubeProtobuf, &item.object));
    other.done(&theirs).await;
}
