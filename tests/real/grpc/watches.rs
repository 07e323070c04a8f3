//! One selection watched: where its tokens are good, and what it is told in an outage. `grpc::objects` has a model of frames,
//! `real` compares them with the apiserver's, and `age` and `syncs` have its goodbyes.

use std::time::Duration;

use futures_util::future::join_all;
use informerd::grpc::pb::v1;
use informerd_sim::Server;
use serde_json::json;
use tonic::Code;

use super::fixtures::{
    Frame, Frames, add, all, client, config_map, filtered, labels, resume, said, simulated, started, watch_of,
};
use crate::support::{Through, within};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_on_another_replica_and_for_nothing_else() {
    let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
    let (server, through, _) = Through::simulated([system.clone(), config_map("a", "one")], "").await;
    let other = Through::before(&server, "").await;
    let mut frames = Frames::begun(&mut client(&through).await, watch_of(all("configmaps"))).await;
    let (token, mut there) = (frames.token.clone(), client(&other).await);
    Frames::open(&mut there, watch_of(all("configmaps"))).await.tell().await;
    let missed = [format!("ADDED a/two@{}", server.create(config_map("a", "two")).unwrap())];
    assert_eq!(said(&frames.events(1).await), missed);
    assert_eq!(through.daemon.grpc.event_lag.read().count, 1, "of the change, and not of the snapshot");
    let mut again = Frames::resumed(&mut there, all("configmaps"), &token).await;
    assert_eq!(said(&again.events(1).await), missed);

    let cluster = Server::builder().object(config_map("a", "first")).object(system).start().await.unwrap();
    let elsewhere = Through::before(&cluster, "").await;
    for (mut client, selection, of) in [
        (there, filtered("configmaps", vec![labels("a=b")]), "selection"),
        (client(&elsewhere).await, all("configmaps"), "cluster"),
    ] {
        let refused = client.watch(resume(selection, &token)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(refused.message(), format!("the resume token is of another {of}"));
    }
}

/// A bookmark every second, on watches that opened when there was nothing new to be heard.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_opens_in_an_outage_is_told_of_the_silence() {
    let (server, _through, mut client) = simulated([config_map("a", "one")], "").await;
    let frames = Frames::begun(&mut client, watch_of(all("configmaps"))).await;
    server.faults().blackhole(true);
    let second = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let fresh = v1::WatchRequest { bookmark_interval: second, ..watch_of(all("configmaps")) };
    let resumed = v1::WatchRequest { bookmark_interval: second, ..resume(all("configmaps"), &frames.token) };
    let merged = |request: &v1::WatchRequest| v1::WatchRequest { conflate: true, ..request.clone() };
    let each = [merged(&fresh), merged(&resumed), fresh.clone(), resumed].map(|request| {
        let mut client = client.clone();
        async move {
            let mut frames = Frames::open(&mut client, request.clone()).await;
            if !started(&frames.tell().await) {
                frames.snapshot().await;
            }
            let mut silence = Duration::ZERO;
            for _ in 0..2 {
                let Some(Frame::Bookmark(bookmark)) = frames.next().await else { panic!("no bookmark: {request:?}") };
                let now = bookmark.upstream_silence.unwrap().try_into().unwrap();
                assert!(now > silence, "{now:?} after {silence:?}");
                silence = now;
            }
            Frames::resumed(&mut client, all("configmaps"), &frames.token).await;
        }
    });
    join_all(each).await;
    let requests = tokio_stream::StreamExt::chain(tokio_stream::once(add(1, fresh, None)), tokio_stream::pending());
    let mut sync = client.sync(requests).await.unwrap().into_inner();
    let mut bookmarks = 0;
    while bookmarks < 2 {
        let response = within("a bookmark", sync.message()).await.unwrap().unwrap().response.unwrap();
        bookmarks += usize::from(matches!(response.frame, Some(Frame::Bookmark(_))));
    }
}
