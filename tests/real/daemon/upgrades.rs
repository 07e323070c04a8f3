//! Connections that become something else, through to a real kube-apiserver.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::fixtures::RawConnection;
use super::passthrough::world;
use crate::world::World;

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

#[tokio::test(flavor = "multi_thread")]
async fn sessions_in_pods_that_run_nowhere() {
    let world = world().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    world.through.write(Method::POST, pods, &pod).await;
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
