//! Connections that become something else, through to a real kube-apiserver.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::fixtures::{JSON, RawConnection};
use super::passthrough::world;
use crate::support::eventually;
use crate::world::World;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A text frame of a WebSocket that is not masked, as servers send them.
async fn text_frame(raw: &mut RawConnection) -> String {
    let mut head = [0; 2];
    let read = async {
        raw.stream.read_exact(&mut head).await.unwrap();
        assert_eq!(head[0] & 0x8f, 0x81, "a whole text frame: {head:?}");
        let length = match head[1] {
            126 => usize::from(raw.stream.read_u16().await.unwrap()),
            127 => usize::try_from(raw.stream.read_u64().await.unwrap()).unwrap(),
            short => usize::from(short),
        };
        let mut text = vec![0; length];
        raw.stream.read_exact(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    };
    tokio::time::timeout(Duration::from_secs(30), read).await.expect("a frame")
}

impl World {
    /// Asks for a WebSocket and returns the connection right behind the head of the answer.
    async fn websocket(&self, path: &str, more: &str) -> (RawConnection, String) {
        let mut raw = RawConnection::open(&self.daemon.url).await;
        let host = self.daemon.url.strip_prefix("http://").unwrap();
        raw.say(&format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        ))
        .await;
        // Byte by byte, so that no frame is read with it.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = tokio::time::timeout(Duration::from_secs(30), raw.stream.read_u8()).await.expect("an answer");
            head.push(byte.unwrap());
        }
        (raw, String::from_utf8(head).unwrap())
    }
}

/// Clients that ask for a watch by WebSocket wait for its frames: a plain answer would leave them hanging.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_by_websocket() {
    let world = world().await;
    let body = json!({"metadata": {"name": "one"}}).to_string();
    world.direct.request(Method::POST, CONFIG_MAPS, &[JSON], &body).await;
    // The informer runs, and would have the answer.
    world.through.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0&fieldSelector=metadata.name%21%3Dkube-root-ca.crt");
    // As fabric8 does, with the origin of the server it speaks to.
    let origin = format!("Origin: {}\r\n", world.daemon.url);
    let (mut raw, head) = world.websocket(&path, &origin).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    // RFC 6455: the answer to this key.
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    let event: Value = serde_json::from_str(&text_frame(&mut raw).await).unwrap();
    assert_eq!((event["type"].as_str(), event["object"]["metadata"]["name"].as_str()), (Some("ADDED"), Some("one")));
    for name in ["two", "three"] {
        let body = json!({"metadata": {"name": name}}).to_string();
        world.through.request(Method::POST, CONFIG_MAPS, &[JSON], &body).await;
        let event: Value = serde_json::from_str(&text_frame(&mut raw).await).unwrap();
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    let http = &world.daemon.daemon.http;
    assert_eq!((http.upgrades_open.get(), http.watches_open.get()), (1, 1), "served from the cache");
    drop(raw);
    eventually("the session ends with its client", || (http.upgrades_open.get(), http.watches_open.get()) == (0, 0))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_in_pods_that_run_nowhere() {
    let world = world().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}).to_string();
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(world.through.request(Method::POST, pods, &[JSON], &pod).await.status, 201);
    // The refusals of kubectl exec, attach, port-forward and cp, through kubectl itself.
    let local = world.cluster.dir().join("through.kubeconfig");
    std::fs::write(&local, informerd_sim::kubeconfig("through", &world.daemon.url)).unwrap();
    for args in [
        vec!["exec", "p", "--", "true"],
        vec!["attach", "p"],
        vec!["logs", "p"],
        vec!["port-forward", "pod/p", "0:80"],
        vec!["exec", "missing", "--", "true"],
    ] {
        let direct = world.cluster.kubectl(world.cluster.admin(), &args).await;
        let through = world.cluster.kubectl(&local, &args).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&through.stderr), text(&direct.stderr), "{args:?}");
        assert_eq!((through.status, text(&through.stdout)), (direct.status, text(&direct.stdout)), "{args:?}");
        assert_eq!(through.status.success(), args[0] == "logs", "{args:?}");
    }
    // The same without kubectl, by WebSocket and by SPDY.
    let (mut raw, head) = world
        .websocket(&format!("{pods}/p/exec?command=true&stdout=1"), "Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n")
        .await;
    assert!(head.starts_with("HTTP/1.1 400 ") || head.starts_with("HTTP/1.1 500 "), "{head}");
    let told = raw.until("\"code\":").await;
    assert!(told.contains("does not have a host assigned"), "{told}");
    // The daemon goes on.
    world.same_over_both(&format!("{pods}/p/log"), &[]).await;
}
