use std::sync::atomic::{AtomicUsize, Ordering};

use http::HeaderMap;
use http_body_util::{Full, StreamBody};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::client::pool::{MAX_MOVES, MAX_MOVES_OF_STRANGERS};
use crate::client::tests::{get, text, upstream};
use crate::client::{Identity, Upstream, UpstreamConfig, full};
use crate::error::UpstreamError;
use crate::raw_testing::{DATA, GOAWAY, HEADERS, RST_STREAM, SETTINGS, frame};
use crate::testing::{Certificates, FakeServer, answer};
use informerd_lifecycle::spawn;
use informerd_memory::Pressure;

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;

/// How the first connections end.
#[derive(Clone, Copy)]
enum End {
    GoAway { last: u32, reason: u32 },
    Reset { reason: u32 },
}

/// A server with just enough HTTP/2 to end its first `turns` connections, each after it has received a request and
/// `body` bytes of its body. It passes all later connections to `next`.
async fn refusing(next: &FakeServer, turns: usize, end: End, body: usize) -> (kube::Config, Arc<AtomicUsize>) {
    let certificates: Certificates = next.certificates.clone().unwrap();
    let acceptor = certificates.acceptor(vec![b"h2".to_vec()]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refused = Arc::new(AtomicUsize::new(0));
    let (count, target) = (Arc::clone(&refused), next.address);
    spawn("refusing", async move {
        for turn in 0.. {
            let Ok((mut tcp, _)) = listener.accept().await else { return };
            if turn >= turns {
                let mut to = tokio::net::TcpStream::connect(target).await.unwrap();
                spawn("relay", async move { tokio::io::copy_bidirectional(&mut tcp, &mut to).await.ok() });
                continue;
            }
            let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
            spawn("refusal", async move {
                let mut io = acceptor.accept(tcp).await.unwrap();
                io.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
                io.read_exact(&mut [0; 24]).await.unwrap();
                let (mut stream, mut came) = (None, 0);
                while stream.is_none() || came < body {
                    let mut head = [0; 9];
                    io.read_exact(&mut head).await.unwrap();
                    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                    io.read_exact(&mut vec![0; length]).await.unwrap();
                    match head[3] {
                        HEADERS => stream = Some(u32::from_be_bytes(head[5..].try_into().unwrap())),
                        DATA => came += length,
                        _ => {}
                    }
                }
                count.fetch_add(1, Ordering::Relaxed);
                let bytes = match end {
                    End::GoAway { last, reason } => {
                        frame(GOAWAY, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat())
                    }
                    End::Reset { reason } => frame(RST_STREAM, 0, stream.unwrap(), &reason.to_be_bytes()),
                };
                io.write_all(&bytes).await.unwrap();
                if let End::GoAway { last: 1.., .. } = end {
                    // The GOAWAY said that the request was begun; then the connection ends.
                    return;
                }
                while io.read(&mut [0; 1024]).await.is_ok_and(|n| n > 0) {}
            });
        }
    });
    let mut config = next.config();
    config.cluster_url = format!("https://{address}").parse().unwrap();
    (config, refused)
}

/// A server that answers with the request body.
async fn echo() -> FakeServer {
    FakeServer::tls(&["h2"], 100, |request, _| async move {
        answer(200, request.into_body().collect().await.unwrap().to_bytes())
    })
    .await
}

fn post(body: ReqBody) -> Request<ReqBody> {
    Request::post("/api/v1/pods?x=1").header("content-type", "text/x").body(body).unwrap()
}

#[tokio::test]
async fn a_write_that_was_not_begun_is_sent_again() {
    for end in [End::GoAway { last: 0, reason: NO_ERROR }, End::Reset { reason: REFUSED_STREAM }] {
        let server = echo().await;
        let (config, refused) = refusing(&server, 3, end, 5).await;
        let client = Upstream::from_config(config).await.unwrap();
        let response = client.send(Identity::Own, post(full("hello"))).await.unwrap();
        assert_eq!(text(response).await, "hello");
        assert_eq!(refused.load(Ordering::Relaxed), 3);
        assert_eq!(client.metrics().resends.get(), 3);
        let seen = server.requests();
        assert_eq!((seen.len(), seen[0].uri.as_str()), (1, "/api/v1/pods?x=1"));
        assert_eq!(seen[0].headers["content-type"], "text/x");
        assert_eq!(seen[0].headers["content-length"], "5");
        assert_eq!(client.metrics().kept_request_bytes.get(), 0);
        assert!(client.is_reachable());
    }
}

#[tokio::test]
async fn a_write_that_may_have_been_begun_is_not_sent_again() {
    let ends = [
        End::GoAway { last: 1, reason: NO_ERROR },
        End::GoAway { last: 1, reason: INTERNAL_ERROR },
        End::Reset { reason: INTERNAL_ERROR },
    ];
    for end in ends {
        let server = echo().await;
        let (config, refused) = refusing(&server, 1, end, 5).await;
        let client = Upstream::from_config(config).await.unwrap();
        let result = client.send(Identity::Own, post(full("hello"))).await;
        assert!(matches!(result, Err(UpstreamError::Request(_))), "{:?}", result.map(|_| ()));
        assert_eq!((refused.load(Ordering::Relaxed), server.requests().len()), (1, 0));
    }
}

#[tokio::test]
async fn a_server_that_always_refuses_is_not_asked_for_ever() {
    for (identity, most) in [(Identity::Own, MAX_MOVES), (Identity::Stranger, MAX_MOVES_OF_STRANGERS)] {
        for turns in [most - 1, most] {
            let server = echo().await;
            let (config, refused) = refusing(&server, turns, End::Reset { reason: REFUSED_STREAM }, 5).await;
            let client = Upstream::from_config(config).await.unwrap();
            let sent = client.send(identity, post(full("hello"))).await;
            assert_eq!(matches!(sent, Err(UpstreamError::Busy)), turns == most, "{:?}", sent.map(drop));
            assert_eq!((refused.load(Ordering::Relaxed), server.requests().len()), (turns, most - turns));
            assert_eq!(client.metrics().seeks.get(), 0, "it is there");
        }
    }
}

/// There was no memory to keep its body.
#[tokio::test]
async fn a_write_that_was_not_begun_and_cannot_be_sent_again_is_no_outage() {
    let server = echo().await;
    let (config, _refused) = refusing(&server, 1, End::Reset { reason: REFUSED_STREAM }, 5).await;
    let settings = UpstreamConfig { ledger: Ledger::new(0, Pressure::default()), ..UpstreamConfig::default() };
    let client = upstream(config, settings).await;
    let sent = client.send(Identity::Own, post(full("hello"))).await;
    assert!(matches!(sent, Err(UpstreamError::Busy)), "{:?}", sent.map(drop));
    assert_eq!((client.metrics().seeks.get(), server.requests().len()), (0, 0));
}

/// A body whose second half is sent after the first connection has ended.
#[tokio::test]
async fn a_body_that_was_half_sent_goes_whole() {
    let server = echo().await;
    let (config, refused) = refusing(&server, 1, End::GoAway { last: 0, reason: NO_ERROR }, 6).await;
    let client = Upstream::from_config(config).await.unwrap();
    let (sender, mut receiver) = mpsc::channel::<Bytes>(4);
    let body = StreamBody::new(futures_util::stream::poll_fn(move |cx| {
        receiver.poll_recv(cx).map(|chunk| chunk.map(|chunk| Ok::<_, BoxError>(Frame::data(chunk))))
    }));
    let (started, waiting) = oneshot::channel::<()>();
    let count = Arc::clone(&refused);
    let writer = spawn("writer", async move {
        sender.send("first ".into()).await.unwrap();
        started.send(()).unwrap();
        while count.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        sender.send("second".into()).await.unwrap();
    });
    let response = client.send(Identity::Own, post(body.boxed_unsync())).await.unwrap();
    waiting.await.unwrap();
    writer.await.unwrap();
    assert_eq!(text(response).await, "first second");
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    assert_eq!(client.metrics().kept_request_bytes.get(), 0);
}

#[tokio::test]
async fn what_is_kept_is_bounded() {
    let metrics = Arc::new(UpstreamMetrics::default());
    let kept = || metrics.kept_request_bytes.get();
    // The body is not read yet: nothing is kept, and it can be sent again. Twice, with the same result.
    let most = MAX_KEPT - PIECE;
    let chunk = || Bytes::from(vec![7; most]);
    let (request, replay) = Replay::of(
        post(Full::new(chunk()).map_err(|never| match never {}).boxed_unsync()),
        &metrics,
        &Ledger::default(),
    );
    assert_eq!(kept(), 0);
    assert_eq!(request.body().size_hint().exact(), Some(most as u64));
    for _ in 0..2 {
        let mut body = replay.again().unwrap().into_body();
        assert_eq!(body.size_hint().exact(), Some(most as u64));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), chunk());
        assert!(body.is_end_stream());
        assert_eq!(kept(), weight(MAX_KEPT));
    }
    // An earlier reader takes nothing away.
    assert!(request.into_body().frame().await.unwrap().is_err());
    drop(replay);
    assert_eq!(kept(), 0);

    // Pieces without bytes count as well.
    for (pieces, fits) in [(MAX_KEPT / PIECE, true), (MAX_KEPT / PIECE + 1, false)] {
        let frames = (0..pieces).map(|_| Ok::<_, BoxError>(Frame::data(Bytes::new())));
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        let (request, replay) = Replay::of(post(body), &metrics, &Ledger::default());
        let mut body = request.into_body();
        for _ in 0..pieces {
            body.frame().await.unwrap().unwrap();
        }
        assert_eq!(replay.again().is_some(), fits);
    }

    // One byte more than may be kept.
    let chunks = [chunk(), Bytes::from_static(b"x"), Bytes::from_static(b"y")];
    let body = StreamBody::new(futures_util::stream::iter(chunks.map(|chunk| Ok::<_, BoxError>(Frame::data(chunk)))));
    let (request, replay) = Replay::of(post(body.boxed_unsync()), &metrics, &Ledger::default());
    let mut body = request.into_body();
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    assert!(replay.again().is_none());
    assert_eq!(kept(), 0);
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "y");
    assert!(body.frame().await.is_none());

    // What others keep leaves room for one byte, or for none.
    let one = weight(PIECE + 1);
    for (others, fits) in [(MAX_KEPT_TOTAL - one, true), (MAX_KEPT_TOTAL - one + 1, false)] {
        metrics.kept_request_bytes.inc_by(others);
        let (request, replay) = Replay::of(post(full("x")), &metrics, &Ledger::default());
        request.into_body().frame().await.unwrap().unwrap();
        assert_eq!((replay.again().is_some(), kept()), (fits, others + one * i64::from(fits)));
        drop(replay);
        metrics.kept_request_bytes.dec_by(others);
    }
    assert_eq!(kept(), 0);
}

/// A server that has answered takes headers on the stream for a mistake of the connection, which other clients share.
#[tokio::test]
async fn trailers_of_clients_are_not_sent() {
    let frames = || {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
        let frames = [Frame::data(Bytes::from_static(b"all")), Frame::trailers(trailers)];
        StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, BoxError>))).boxed_unsync()
    };
    let metrics = Arc::new(UpstreamMetrics::default());
    let (request, replay) = Replay::of(post(frames()), &metrics, &Ledger::default());
    for _ in 0..2 {
        let mut body = replay.again().unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "all");
        assert!(body.frame().await.is_none(), "no trailers");
    }
    drop(request);
    let server = FakeServer::tls(&["h2"], 100, |request, _| async move {
        let body = request.into_body().collect().await.unwrap();
        let trailers = body.trailers().is_some();
        answer(200, format!("{} {trailers}", String::from_utf8_lossy(&body.to_bytes())))
    })
    .await;
    let client = Upstream::from_config(server.config()).await.unwrap();
    assert_eq!(text(client.send(Identity::Own, post(frames())).await.unwrap()).await, "all false");
}

#[tokio::test]
async fn gets_are_refused_no_longer_than_they_must() {
    let server = echo().await;
    let (config, refused) = refusing(&server, 2, End::GoAway { last: 0, reason: NO_ERROR }, 0).await;
    let settings = UpstreamConfig { max_connections: 1, ..UpstreamConfig::default() };
    let client = upstream(config, settings).await;
    assert_eq!(client.send(Identity::Own, get("/version")).await.unwrap().status(), 200);
    assert_eq!(refused.load(Ordering::Relaxed), 2);
}
