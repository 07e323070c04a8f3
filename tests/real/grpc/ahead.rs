//! Watches that begin at a revision that the cache has not seen, over gRPC and HTTP.

use informerd::grpc::pb::v1;
use informerd_sim::{Effect, Fault, Server};
use serde_json::json;

use super::fixtures::{
    Frame, Frames, all, client, config_map, consistent, filtered, labelled, labels, list, said, started, watch_of,
};
use crate::support::client::Client as Http;
use crate::support::{Through, within};

/// The stream is silent while an object comes and goes, and another one is selected for a while. The daemon learns that
/// there is nothing new at a later revision. A client that has seen more elsewhere watches from there, and the daemon
/// has to list.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_began_in_the_gap_of_a_relist_is_reset() {
    for conflate in [false, true] {
        let server = Server::builder().object(config_map("a", "one")).start().await.unwrap();
        let through = Through::before(&server, "").await;
        let mut client = client(&through).await;
        let mut frames = Frames::open(&mut client, watch_of(all("configmaps"))).await;
        started(&frames.tell().await);
        frames.snapshot().await;
        let stall = server.faults().add(Fault::always(Effect::Stall).on("configmaps"));
        let start = server.create(labelled("a", "gone", &json!({"app": "x"}))).unwrap();
        server.delete("configmaps", "a", "gone").unwrap();
        let http = Http::new(&through.url);
        let mut over_http = Vec::new();
        for selection in ["", "&labelSelector=app%3Dx"] {
            let path = format!("/api/v1/configmaps?watch=1&resourceVersion={start}{selection}");
            over_http.push((http.watch(&path).await, path));
        }
        let newest = v1::ListRequest { selection: Some(all("configmaps")), consistency: Some(consistent()) };
        let (header, objects) = list(&mut client, newest).await;
        assert!(header.resource_version.parse::<u64>().unwrap() > start && objects.len() == 1);

        let mut watches = Vec::new();
        for selection in [all("configmaps"), filtered("configmaps", vec![labels("app=x")])] {
            let start = Some(v1::watch_request::Start::FromResourceVersion(start.to_string()));
            let request = v1::WatchRequest { start, conflate, ..watch_of(selection) };
            let mut frames = Frames::open(&mut client, request).await;
            assert!(started(&frames.tell().await), "it has begun after {start:?}", start = header.resource_version);
            watches.push(frames);
        }
        server.faults().compact();
        server.faults().remove(stall);
        server.faults().expire_watches(None);
        for (mut watch, path) in over_http {
            assert_eq!(within("the watch ends", watch.next()).await.unwrap(), None, "{path}");
            let error = within("the next one is answered", http.watch(&path).await.next()).await.unwrap().unwrap();
            assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)), "{path}");
        }
        let state = server.state("configmaps");
        let state: Vec<_> = state.iter().map(|(key, rv)| format!("ADDED {key}@{rv}")).collect();
        assert_eq!(state.len(), 1);
        for (frames, wanted) in watches.iter_mut().zip([&state[..], &[]]) {
            let Frame::Reset(reset) = frames.tell().await else { panic!("no reset") };
            assert_eq!(reset.reason(), v1::reset::Reason::Relisted);
            assert_eq!(said(&frames.snapshot().await.0), wanted);
        }
        let next = server.create(labelled("a", "next", &json!({"app": "x"}))).unwrap();
        for frames in &mut watches {
            assert_eq!(said(&frames.events(1).await), [format!("ADDED a/next@{next}")]);
        }
    }
}
