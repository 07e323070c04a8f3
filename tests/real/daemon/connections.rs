//! Listeners of every kind, and many watches on them.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use futures_util::future::join_all;
use informerd::http::ListenAddr;
use informerd_sim::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::fixtures::{CONFIG_MAPS, config_map};
use crate::support::client::{Client, Watch, names};
use crate::support::{Through, eventually};

/// Opens this many watches, each with a client of its own making.
async fn open(count: usize, client: impl Fn() -> Client) -> Vec<Watch> {
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0&timeoutSeconds=300");
    let watches = join_all((0..count).map(|_| {
        let (client, path) = (client(), path.clone());
        async move { client.watch(&path).await }
    }));
    let watches = tokio::time::timeout(Duration::from_secs(60), watches).await.expect("the watches open");
    assert!(watches.iter().all(|watch| watch.status == 200));
    watches
}

/// One event reaches every watch, and dropping them frees everything.
async fn each_gets_an_event(server: &Server, through: &Through, watches: Vec<Watch>, connections: i64, round: usize) {
    let http = &through.daemon.http;
    assert_eq!((http.watches_open.get(), http.connections_open.get()), (watches.len() as i64, connections));
    assert_eq!(server.counts().open_watches("configmaps"), 1);
    let name = format!("event-{round}");
    server.create(config_map("a", &name)).unwrap();
    let count = watches.len();
    let heard = join_all(watches.into_iter().map(|mut watch| {
        let name = name.clone();
        async move {
            // Earlier rounds' objects come first.
            while watch.next_event().await["object"]["metadata"]["name"] != *name {}
            watch
        }
    }));
    assert_eq!(heard.await.len(), count);
    eventually("every watch is closed", || http.watches_open.get() == 0).await;
    eventually("every connection is closed", || http.connections_open.get() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_watches_on_one_connection() {
    let (server, through, _) =
        Through::simulated([], "listen: [\"http://127.0.0.1:0\", \"https://127.0.0.1:0\"]\n").await;
    let client = Client::http2(&through.url);
    // The first request makes the connection; without it a thousand would race for one.
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let watches = open(1000, || client.clone()).await;
    drop(client);
    each_gets_an_event(&server, &through, watches, 1, 1).await;

    let ListenAddr::Https(address) = &through.daemon.listen[1] else { panic!("{:?}", through.daemon.listen) };
    let ca = through.daemon.ca_file.clone().expect("a self-issued certificate has a CA");
    let client = Client::tls_anonymous(&format!("https://{address}"), &ca);
    client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
    let watches = open(1000, || client.clone()).await;
    drop(client);
    each_gets_an_event(&server, &through, watches, 1, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_connections_with_a_watch_each() {
    let (server, through, _) =
        Through::simulated([], "listen: [\"http://127.0.0.1:0\", \"https://127.0.0.1:0\"]\n").await;
    let url = through.url.clone();
    let watches = open(500, || Client::new(&url)).await;
    each_gets_an_event(&server, &through, watches, 500, 1).await;

    // HTTP/1.1 over TLS, for clients that cannot do better.
    let ListenAddr::Https(address) = &through.daemon.listen[1] else { panic!("{:?}", through.daemon.listen) };
    let ca = through.daemon.ca_file.clone().unwrap();
    let watches = open(20, || Client::tls_http1(&format!("https://{address}"), &ca)).await;
    each_gets_an_event(&server, &through, watches, 20, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket() {
    let (_server, through, _) =
        Through::simulated([config_map("a", "one")], "listen: [\"unix://STATE_DIR/informerd.sock\"]\n").await;
    let path = through.url.strip_prefix("unix://").unwrap().to_owned();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut socket = UnixStream::connect(&path).await.unwrap();
    // No browser can reach it, so any host will do.
    let request =
        format!("GET {CONFIG_MAPS}?resourceVersion=0 HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(names(&serde_json::from_str(body).unwrap()), ["one"]);
    through.stop(Duration::from_secs(5)).await;
    eventually("the socket is removed", || !std::path::Path::new(&path).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_are_closed() {
    let (server, through, _) = Through::simulated([], "limits: { maxConnections: 5 }\n").await;
    let url = through.url.clone();
    let watches = open(5, || Client::new(&url)).await;
    let address = url.strip_prefix("http://").unwrap();
    let mut sixth = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut nothing = Vec::new();
    // Closed or reset, and nothing said.
    tokio::time::timeout(Duration::from_secs(60), sixth.read_to_end(&mut nothing)).await.expect("closed").ok();
    assert!(nothing.is_empty());
    assert_eq!(through.daemon.http.connections_refused.get(), 1);
    each_gets_an_event(&server, &through, watches, 5, 1).await;
    assert_eq!(Client::new(&url).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.status, 200);
}
