//! Many watches, on listeners of both kinds.

use futures_util::future::join_all;
use informerd_sim::Server;
use tokio::io::AsyncReadExt;

use super::fixtures::{CONFIG_MAPS, RawConnection, config_map};
use crate::support::client::{Client, Watch};
use crate::support::{Through, eventually, within};

/// Opens this many watches, each with a client of its own making.
async fn open(count: usize, client: impl Fn() -> Client) -> Vec<Watch> {
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0&timeoutSeconds=300");
    let watches = join_all((0..count).map(|_| {
        let (client, path) = (client(), path.clone());
        async move { client.watch(&path).await }
    }));
    let watches = within("the watches open", watches).await;
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
async fn a_thousand_watches_on_one_connection_and_hundreds_on_their_own() {
    let (server, through, _) =
        Through::simulated([], "listen: [\"http://127.0.0.1:0\", \"https://127.0.0.1:0\"]\n").await;
    let (url, ca) = (through.listener(1), through.ca());
    for (round, client) in [Client::http2(&through.url), Client::tls_anonymous(&url, &ca)].into_iter().enumerate() {
        // The first request makes the connection; without it a thousand would race for one.
        client.json(&format!("{CONFIG_MAPS}?resourceVersion=0")).await;
        let watches = open(1000, || client.clone()).await;
        drop(client);
        each_gets_an_event(&server, &through, watches, 1, round).await;
    }
    let watches = open(500, || Client::new(&through.url)).await;
    each_gets_an_event(&server, &through, watches, 500, 2).await;
    // HTTP/1.1 over TLS, for clients that cannot do better.
    let watches = open(20, || Client::tls_http1(&url, &ca)).await;
    each_gets_an_event(&server, &through, watches, 20, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_are_closed() {
    let (server, through, _) = Through::simulated([], "limits: { maxConnections: 5 }\n").await;
    let url = through.url.clone();
    let watches = open(5, || Client::new(&url)).await;
    let mut sixth = RawConnection::open(&url).await.stream;
    let mut nothing = Vec::new();
    // Closed or reset, and nothing said.
    within("it is closed", sixth.read_to_end(&mut nothing)).await.ok();
    assert!(nothing.is_empty());
    assert_eq!(through.daemon.http.connections_refused.get(), 1);
    each_gets_an_event(&server, &through, watches, 5, 1).await;
    assert_eq!(Client::new(&url).get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.status, 200);
}
