use std::net::IpAddr;
use std::time::Duration;

use http::Request;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;

use super::super::io::Bounded;
use super::*;
use crate::apiserver::raw_testing;
use crate::http::door::{Heard, Newcomers};

const SECOND: Duration = Duration::from_secs(1);

async fn newcomer() -> Arc<Newcomer> {
    Newcomers::new(usize::MAX, Arc::default()).place(IpAddr::from([10, 0, 0, 1])).await
}

fn heard(newcomer: &Arc<Newcomer>) -> Heard {
    newcomer.hear(&Request::get("/").body(()).unwrap()).unwrap().unwrap()
}

fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
    raw_testing::frame(kind, flags, 1, &vec![kind; payload])
}

/// A connection whose client has sent these bytes.
async fn opened(newcomer: &Arc<Newcomer>, bytes: &[u8]) -> (Bounded<DuplexStream>, DuplexStream) {
    let (ours, mut theirs) = duplex(1 << 20);
    theirs.write_all(bytes).await.unwrap();
    let mut ours = Bounded::new(ours, SECOND, Arc::default(), Some(newcomer));
    ours.open(SECOND).await.unwrap().unwrap();
    (ours, theirs)
}

async fn readable(stream: &mut Bounded<DuplexStream>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 1000];
    while let Ok(Ok(some @ 1..)) = timeout(Duration::from_millis(20), stream.read(&mut buffer)).await {
        all.extend_from_slice(&buffer[..some]);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_head_is_read_when_it_is_whole() {
    let newcomer = newcomer().await;
    let settings = [HTTP2_PREFACE, &frame(4, 0, 6)].concat();
    let (mut ours, mut theirs) = opened(&newcomer, &settings).await;
    let first = frame(HEADERS, 0, 3000);
    theirs.write_all(&first).await.unwrap();
    assert_eq!(readable(&mut ours).await, settings);
    let (more, last, data) = (frame(CONTINUATION, 0, 10), frame(CONTINUATION, END_HEADERS, 7), frame(0, 0, 5));
    theirs.write_all(&[&more[..], &last[..8]].concat()).await.unwrap();
    assert!(readable(&mut ours).await.is_empty());
    theirs.write_all(&[&last[8..], &data].concat()).await.unwrap();
    assert_eq!(readable(&mut ours).await, [first, more, last, data].concat());
}

#[tokio::test(start_paused = true)]
async fn what_is_held_back_comes_when_the_client_is_known() {
    let newcomer = newcomer().await;
    let part = frame(HEADERS, 0, 30);
    let (mut ours, mut theirs) = opened(&newcomer, &[HTTP2_PREFACE, &part, &[0, 0]].concat()).await;
    assert_eq!(readable(&mut ours).await, HTTP2_PREFACE);
    newcomer.authenticated();
    assert_eq!(readable(&mut ours).await, [&part[..], &[0, 0]].concat());
    theirs.write_all(&[1; 2 * SAYS]).await.unwrap();
    assert_eq!(readable(&mut ours).await.len(), 2 * SAYS);
}

#[tokio::test(start_paused = true)]
async fn it_says_little_until_it_is_judged() {
    let newcomer = newcomer().await;
    let (mut ours, mut theirs) = opened(&newcomer, b"GET / HTTP/1.1\r\n").await;
    let judged = heard(&newcomer);
    theirs.write_all(&[b'x'; 3 * SAYS]).await.unwrap();
    let said = readable(&mut ours).await.len();
    assert!((SAYS..SAYS + PART).contains(&said), "{said}");
    assert!(newcomer.go_on_unjudged());
    assert_eq!(readable(&mut ours).await.len() + said, 3 * SAYS + 16);
    let (mut ours, mut theirs) = opened(&self::newcomer().await, b"GET / HTTP/1.1\r\n").await;
    theirs.write_all(&[b'x'; 3 * SAYS]).await.unwrap();
    let error = ours.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "no request of it is waited for");
    drop(judged);
}

#[tokio::test]
async fn one_head_is_read_before_the_next_is_looked_for() {
    let newcomer = newcomer().await;
    let head = frame(HEADERS, END_HEADERS, 5);
    let (mut ours, _theirs) = opened(&newcomer, &[HTTP2_PREFACE, &head, &head, &head].concat()).await;
    let mut buffer = [0; 1000];
    let mut reads = Vec::new();
    for _ in 0..6 {
        let mut buf = ReadBuf::new(&mut buffer);
        let read = futures_util::poll!(std::future::poll_fn(|cx| Pin::new(&mut ours).poll_read(cx, &mut buf)));
        reads.push(read.is_ready().then(|| buf.filled().len()));
    }
    let (preface, head) = (Some(HTTP2_PREFACE.len()), Some(head.len()));
    assert_eq!(reads, [preface, head, None, head, None, head]);
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![Just(HEADERS), Just(CONTINUATION), 0_u8..12];
    let one = (kinds, any::<u8>(), 0_usize..40).prop_map(|(kind, flags, length)| frame(kind, flags, length));
    proptest::collection::vec(one, 0..20).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn bytes_stay_what_they_are_however_they_come(bytes in frames(), cut in 1_usize..50) {
        let mut frames = Frames { payload: 0, head: Vec::new(), in_head: false, held: Vec::new(), last: false };
        let mut ready = Vec::new();
        for mut part in bytes.chunks(cut) {
            while let Some(taken) = frames.take(part, &mut ready) {
                part = &part[taken..];
                prop_assert!(bytes.starts_with(&ready));
            }
        }
        ready.extend(frames.held);
        ready.extend(frames.head);
        prop_assert_eq!(ready, bytes);
    }
}
