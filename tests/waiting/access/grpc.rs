//! The typed calls by the same rights as HTTP: `unions` shows it of lists and streams.

use informerd::grpc::pb::v1;
use serde_json::json;

use crate::access::rights::{account, binding, path, role, rule, user};
use crate::access::streams::work;
use crate::access::typed::{
    PERMISSION_DENIED, UNAUTHENTICATED, begun, begun_as, config_maps, get, list, selection, send_as, status, status_as,
    trailers, watch,
};
use crate::access::world::World;
use crate::support::client::Client;
use crate::support::grpc::{add, filtered, list_of, resource, watch_of};

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_read_by_the_same_rights() {
    let world = World::warmed("", &["/api/v1/configmaps"]).await;
    let by = async |account: &str| world.through(Some(&world.token(account, &[]).await));
    let (names, nobody) = (by("names").await, by("nothing").await);
    for (client, namespace, name, wanted) in [
        (&names, "a", "one", "0"),
        (&names, "a", "two", PERMISSION_DENIED),
        (&names, "b", "one", PERMISSION_DENIED),
        (&nobody, "a", "one", PERMISSION_DENIED),
        (&nobody, "a", "none", PERMISSION_DENIED),
        (&by("wide").await, "a", "none", "5"),
    ] {
        let (code, body) = status(client, "Get", &get(namespace, name)).await;
        assert_eq!((&*code, body.is_empty()), (wanted, wanted != "0"), "{namespace}/{name}");
    }
    // A namespace lies in itself, the collection of namespaces in none of them.
    let own = role("a", "own", &[rule(&["namespaces"], &[], &["get", "list", "watch"])]);
    world.cluster.apply(&(own + &binding("a", "own", ("Role", "own"), &[account("a", "nothing")]))).await;
    world.allowed(&nobody, "/api/v1/namespaces/a").await;
    let get_own = v1::GetRequest { resource: Some(resource("namespaces")), name: "a".into(), ..Default::default() };
    assert_eq!(status(&nobody, "Get", &get_own).await.0, "0");
    let filters = vec![v1::Filter { names: vec!["a".into()], ..Default::default() }];
    let own = filtered("namespaces", filters);
    for (call, target) in [("List", ""), ("Watch", "watch=1&")] {
        let target = format!("/api/v1/namespaces?{target}fieldSelector=metadata.name%3Da");
        assert_eq!(nobody.get(&target).await.status, 403, "{target}");
        let code = match call {
            "List" => begun(&nobody, call, &list_of(own.clone())).await,
            _ => begun(&nobody, call, &watch_of(own.clone())).await,
        };
        assert_eq!(code, PERMISSION_DENIED, "{call}");
    }
    for client in [world.through(None), world.through(Some("wrong-token"))] {
        assert_eq!(status(&client, "Get", &get("a", "one")).await.0, UNAUTHENTICATED);
        assert_eq!(status(&client, "List", &list(&["a"])).await.0, UNAUTHENTICATED);
        assert_eq!(status(&client, "Watch", &watch(&["a"])).await.0, UNAUTHENTICATED);
        // A stream of many watches is refused as a whole, before any of its requests is read.
        let (code, body) = status(&client, "Sync", &add(1, watch(&["a"]), None)).await;
        assert_eq!((&*code, body.is_empty()), (UNAUTHENTICATED, true));
    }
}

/// What a call says of itself counts no more than over HTTP.
#[tokio::test(flavor = "multi_thread")]
async fn metadata_vouches_for_nobody() {
    let world = World::warmed("authentication: {anonymous: forward}\n", &["/api/v1/configmaps"]).await;
    let vouched = [("x-remote-user", "admin"), ("x-remote-group", "system:masters"), ("x-remote-extra-a", "b")];
    for (token, wanted) in
        [(None, UNAUTHENTICATED), (Some("nobody-token"), PERMISSION_DENIED), (Some("wrong-token"), UNAUTHENTICATED)]
    {
        let client = world.through(token);
        let (code, body) = status_as(&client, "Objects/List", &vouched, &list(&["a"])).await;
        assert_eq!((&*code, body.is_empty()), (wanted, true), "{token:?}");
    }
    // Only the apiserver can say for whom these may be, and nothing is forwarded from here. A listener that trusts its clients
    // knows even less who may be somebody else.
    let (admin, trusted) = (world.through(Some("admin-token")), Client::http2(&world.trusting_url()));
    assert_eq!(status(&trusted, "List", &list(&["a"])).await.0, "0");
    for headers in [
        &[("impersonate-user", "admin")][..],
        &[("impersonate-group", "system:masters")],
        &[("impersonate-uid", "1")],
        &[("impersonate-extra-x", "y")],
        &[("authorization", "Bearer reader-token")],
    ] {
        // However many others stand before it.
        let all = [&[("grpc-x", "v"); 500][..], headers].concat();
        let (code, body) = status_as(&admin, "Objects/List", &all, &list(&["a"])).await;
        assert_eq!((&*code, body.is_empty()), ("14", true), "{headers:?}");
        let is_other = headers[0].0.starts_with("impersonate-");
        let (code, body) = status_as(&trusted, "Objects/List", &all, &list(&["a"])).await;
        assert_eq!((&*code, body.is_empty()), if is_other { ("14", true) } else { ("0", false) }, "{headers:?}");
    }
    // Nobody is told, who may not ask for it, which caches there are.
    for (call, wanted) in [("ListInformers", "0"), ("Freshness", "0"), ("WatchInformers", "0")] {
        let path = format!("Cache/{call}");
        let ask = async |token| {
            let client = world.through(token);
            match call {
                "Freshness" => {
                    status_as(&client, &path, &[], &v1::FreshnessRequest { resource: config_maps() }).await.0
                }
                "ListInformers" => status_as(&client, &path, &[], &v1::ListInformersRequest {}).await.0,
                _ => begun_as(&client, &path, &v1::WatchInformersRequest::default()).await,
            }
        };
        assert_eq!(ask(Some("admin-token")).await, wanted, "{call}");
        assert_eq!(ask(Some("reader-token")).await, PERMISSION_DENIED, "{call}");
        assert_eq!(ask(Some("wrong-token")).await, UNAUTHENTICATED, "{call}");
        assert_eq!(ask(None).await, UNAUTHENTICATED, "{call}");
    }
    // A stream of it ends with the right, too.
    let looks = role("", "looks", &[json!({ "nonResourceURLs": ["/informerd.v1.Cache/*"], "verbs": ["get"] })]);
    world.cluster.apply(&(looks + &binding("", "looks", ("ClusterRole", "looks"), &[user("reader")]))).await;
    let reader = world.through(Some("reader-token"));
    let mut stream = loop {
        let request = v1::WatchInformersRequest::default();
        let answer = send_as(&reader, "Cache/WatchInformers", &[], &request).await;
        if !answer.headers().contains_key("grpc-status") {
            break answer.into_body();
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    world.delete(&path("rolebindings", "", "looks")).await;
    assert_eq!(trailers(&mut stream).await["grpc-status"], PERMISSION_DENIED);
}

/// Two users may call their groups alike: neither takes the other's keys.
#[tokio::test(flavor = "multi_thread")]
async fn groups_of_workers_are_their_users() {
    let world = World::warmed("", &["/api/v1/configmaps"]).await;
    let mut workers = Vec::new();
    for (token, namespaces) in [("admin-token", &["a"][..]), ("reader-token", &["b"]), ("nobody-token", &["a"])] {
        let joined = work(&world, token, "g", selection(namespaces)).await;
        match token {
            "nobody-token" => assert_eq!(joined.err().map(|status| status.code()), Some(tonic::Code::PermissionDenied)),
            // Another selection by the same name: it is another group.
            _ => workers.push(joined.unwrap()),
        }
    }
    let same = work(&world, "admin-token", "g", selection(&["b"])).await;
    assert_eq!(same.err().map(|status| status.code()), Some(tonic::Code::FailedPrecondition));
    assert_eq!(begun(&world.through(Some("reader-token")), "Watch", &watch(&["a"])).await, "0");
}
