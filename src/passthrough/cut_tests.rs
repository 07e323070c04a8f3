//! Answers of the apiserver that are cut: nobody takes them for whole, and they are not kept.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::tests::{ask, forward_of, get, lend_all, text};
use super::*;
use crate::apiserver::raw_testing::{DATA, END_STREAM, RST_STREAM, Raw, RawServer, Then, frame, head};
use crate::http::testing::until;
use crate::lifecycle::spawn;

/// A part of a body, and a reset without an error.
fn cut(stream: u32) -> Vec<u8> {
    let fields = [(":status", "200"), ("content-type", "application/json"), ("etag", "\"1\"")];
    [head(stream, 0, &fields), frame(DATA, 0, stream, b"{\"half"), frame(RST_STREAM, 0, stream, &[0; 4])].concat()
}

#[tokio::test]
async fn a_cut_document_is_not_kept() {
    let asked = AtomicUsize::new(0);
    let server = RawServer::start(Some("h2"), move |stream| {
        let bytes = match asked.fetch_add(1, Ordering::SeqCst) {
            0 => cut(stream),
            1 => [
                head(stream, 0, &[(":status", "200"), ("etag", "\"1\"")]),
                frame(DATA, END_STREAM, stream, b"{\"whole\":1}"),
            ]
            .concat(),
            _ => head(stream, END_STREAM, &[(":status", "304"), ("etag", "\"1\"")]),
        };
        Raw::new(bytes, Then::Stays)
    })
    .await;
    let (forward, _) = forward_of(server.config(), lend_all()).await;
    let path = "/openapi/v3/apis/apps/v1?hash=1";
    let error = ask(&forward, get(path)).await.unwrap_err();
    assert!(matches!(error, ForwardError::Broken { .. }), "{error}");
    for confirmed in [0, 1] {
        assert_eq!(text(ask(&forward, get(path)).await.unwrap()).await, "{\"whole\":1}");
        assert_eq!(forward.metrics().documents_confirmed.get(), confirmed);
    }
}

#[tokio::test]
async fn a_cut_answer_fails_for_each_who_shares_it() {
    let gate = Arc::new(Semaphore::new(0));
    let (asked, wait) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&gate));
    let count = Arc::clone(&asked);
    let server = RawServer::start(Some("h2"), move |stream| {
        count.fetch_add(1, Ordering::SeqCst);
        Raw::new(cut(stream), Then::Stays).after(&wait)
    })
    .await;
    let (forward, _) = forward_of(server.config(), lend_all()).await;
    let reader = || {
        let forward = forward.clone();
        spawn("reader", async move {
            let response = ask(&forward, get("/api/v1/pods")).await.map_err(|error| error.to_string())?;
            let whole = response.into_body().collect().await.map_err(|error| error.to_string())?;
            Ok::<_, String>(whole.to_bytes())
        })
    };
    let first = reader();
    until(|| asked.load(Ordering::SeqCst) == 1).await;
    let sharing = [reader(), reader()];
    tokio::time::sleep(Duration::from_millis(50)).await;
    gate.add_permits(10);
    for reader in [first].into_iter().chain(sharing) {
        let read = tokio::time::timeout(Duration::from_secs(60), reader).await.expect("ends").unwrap();
        assert!(read.is_err(), "{read:?}");
    }
    assert_eq!(forward.metrics().shared_reads.get(), 1);
}
