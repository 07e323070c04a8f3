//! The same users and rights in every form that a read can have: each as allowed, or refused, as the apiserver does it
//! itself.

use informerd::grpc::pb::v1;

use crate::access::typed::{begun, get, named, status};
use crate::access::wire::Socket;
use crate::access::world::World;

const INITIAL: &str =
    "watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
const METADATA: (&str, &str) = ("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// What gRPC makes of the apiserver's answers to each part of a union: all must be allowed.
fn wanted(parts: &[u16]) -> &'static str {
    match parts {
        parts if parts.contains(&401) => "16",
        parts if parts.contains(&403) => "7",
        parts if parts.contains(&404) => "5",
        _ => "0",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_a_read() {
    let world = World::start("authentication: {anonymous: forward}\n").await;
    world.settled().await;
    world.warm(&["/api/v1/configmaps"]).await;
    let users = world.users().await;
    let mut seen = std::collections::BTreeMap::<(&str, String), usize>::new();
    for (user, token) in &users {
        let token = token.as_deref();
        let (direct, through) = (world.direct(token), world.through(token));
        let code = async |target: &str| {
            // Without credentials nothing is served by gRPC, whatever the apiserver lets the anonymous read.
            if token.is_none() { 401 } else { direct.get(target).await.status.as_u16() }
        };
        for namespaces in [&["a"][..], &["b"], &[""], &["a", "b"], &["none"]] {
            for names in [&[][..], &["one"], &["one", "two"]] {
                let (mut lists, mut watches) = (Vec::new(), Vec::new());
                for namespace in namespaces {
                    let any = [""];
                    for name in if names.is_empty() { &any[..] } else { names } {
                        let path =
                            if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
                        let field = if name.is_empty() {
                            String::new()
                        } else {
                            format!("&fieldSelector=metadata.name%3D{name}")
                        };
                        let target = format!("/api/v1{path}/configmaps?resourceVersion=0{field}");
                        lists.push(code(&target).await);
                        let target = format!("/api/v1{path}/configmaps?{INITIAL}{field}");
                        let theirs = code(&target).await;
                        watches.push(theirs);
                        // The forms of HTTP that the larger matrix has not.
                        let metadata = through.watch_as(&target, &[METADATA]).await.status;
                        let direct_metadata = direct.watch_as(&target, &[METADATA]).await.status;
                        assert_eq!(metadata, direct_metadata, "{user}: {target}");
                        let ours = Socket::through(&world, token, &target).await.status;
                        let theirs = Socket::direct(&world, token, &target).await.status;
                        assert_eq!(ours, theirs, "{user}: WebSocket {target}");
                        *seen.entry(("metadata", metadata.as_str().to_owned())).or_default() += 1;
                        *seen.entry(("websocket", ours.to_string())).or_default() += 1;
                    }
                }
                let selection = named(namespaces, names);
                let what = format!("{user}: {namespaces:?} {names:?}");
                let request = v1::ListRequest { selection: selection.clone(), ..Default::default() };
                let listed = status(&through, "List", &request).await.0;
                assert_eq!(listed, wanted(&lists), "list, {what}: {lists:?}");
                let request = v1::WatchRequest { selection, ..Default::default() };
                let watched = begun(&through, "Watch", &request).await;
                assert_eq!(watched, wanted(&watches), "watch, {what}: {watches:?}");
                *seen.entry(("list", listed)).or_default() += 1;
                *seen.entry(("watch", watched)).or_default() += 1;
            }
            for name in ["one", "two", "missing"] {
                let [namespace] = namespaces else { continue };
                if namespace.is_empty() {
                    continue;
                }
                let theirs = code(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}?resourceVersion=0")).await;
                let got = status(&through, "Get", &get(namespace, name)).await.0;
                assert_eq!(got, wanted(&[theirs]), "get, {user}: {namespace} {name}");
                *seen.entry(("get", got)).or_default() += 1;
            }
        }
    }
    for (form, codes) in [
        ("metadata", &["200", "401", "403"][..]),
        ("websocket", &["101", "401", "403"]),
        ("list", &["0", "7", "16"]),
        ("watch", &["0", "7", "16"]),
        ("get", &["0", "5", "7", "16"]),
    ] {
        for code in codes {
            let count = seen.get(&(form, (*code).to_owned())).copied().unwrap_or_default();
            assert!(count >= 2, "{form} {code}: {seen:?}");
        }
    }
}
